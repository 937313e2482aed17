"""Bugs planted into the real cores that the simulation must catch."""
