"""Text: readers, tokenizers, and the built-in stories."""
