"""The sections of the page: each function returns plain data for a template."""
