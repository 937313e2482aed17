"""Where a rank goes on in its data."""
