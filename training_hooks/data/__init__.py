"""The position of a rank in its data, and how it continues there."""
