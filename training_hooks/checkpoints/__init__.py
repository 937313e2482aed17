"""Saves made whole, and checkpoints in memory: written, agreed upon, loaded."""
