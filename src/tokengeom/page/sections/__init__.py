"""The page's sections: what each shows, as plain data for its template."""
