"""Kills, full disks, bad inputs and forged results, tried by the thousand: ``python -m campaign``."""
