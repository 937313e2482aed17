"""Other controllers that own pods: their rank indexes, sizes and ends."""
