"""The state of one job in the core, and which parts of it the next master gets."""
