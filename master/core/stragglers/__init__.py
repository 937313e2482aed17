"""Stragglers: members that are slower than the others, the cause, and the remedy."""
