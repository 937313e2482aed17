"""Whose pod it is: controllers of others, their ranks, sizes and ends."""
