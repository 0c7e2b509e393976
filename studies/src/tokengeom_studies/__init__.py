"""Named experiments: a question, a recipe, and findings with numbers that must lie in known ranges."""
