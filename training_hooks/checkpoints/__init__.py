"""Atomic saves, and checkpoints in memory: how they are written, agreed on and loaded."""
