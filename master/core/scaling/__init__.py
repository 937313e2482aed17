"""The size of a job: asked for, by the clock, or found by itself."""
