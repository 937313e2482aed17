"""Faults: their causes, what they cost, and the remedies."""
