"""What several studies share: random data, training as a recipe says, held-out windows, tables and figures."""
