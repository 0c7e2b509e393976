<<<<<<< HEAD
"""Algorithms, one a file; each ends with a certificate."""
=======
"""Algorithms, one a file. Knows nothing of text."""
>>>>>>> main
