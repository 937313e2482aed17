"""Hang detection: the limits, the looks at the ranks, their evidence, the culprit."""
