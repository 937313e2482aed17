"""What a fault is, what it costs, and what follows from it."""
