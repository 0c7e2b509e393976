"""Text: readers, tokenizers, synthetic languages with known probabilities, and the built-in stories."""
