"""The launcher: supervises a command that cannot be a template, and replaces torchrun."""
