"""The launcher: supervises a command that is no template's, and takes torchrun over."""
