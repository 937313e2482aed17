"""Members that are slower than the others: who, why, and what is done."""
