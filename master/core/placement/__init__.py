"""Which pods there are to be, which rank index each has, and where they may run."""
