"""The page: the stages from a text to one self-contained document, its sections and templates."""
