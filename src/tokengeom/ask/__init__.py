"""Questions about one token or context: find it by name, its neighbours, what pulls it; and export of all vectors."""
