"""Text: readers, tokenizers, synthetic languages that know their own truth, the built-in stories. No counting."""
