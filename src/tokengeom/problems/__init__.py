<<<<<<< HEAD
"""Convex programs as data, each with its dual and its certificate; instances with known answers."""
=======
"""Convex programs as data, each with its certificate. Knows no algorithm."""
>>>>>>> main
