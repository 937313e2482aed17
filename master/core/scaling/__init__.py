"""The size of a job: requested by its user, set by a schedule, or found by measuring."""
