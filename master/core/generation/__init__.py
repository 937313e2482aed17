"""The generation: which members form it, when it starts and stops, and how the job ends."""
