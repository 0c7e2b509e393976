"""What every package may use: errors, numbers, settings, checks, memory, progress, estimates, factors."""
