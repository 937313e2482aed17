"""Commands: how they are read, what starts them, and what their processes get in their environment."""
