"""All that the core knows of one job, and what of it the next master is told."""
