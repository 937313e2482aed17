"""A rank's process: its page, its phases, and which checkpoint it begins from."""
