"""The page: the pipeline from a text to one self-contained document, its sections and templates."""
