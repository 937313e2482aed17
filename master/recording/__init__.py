"""The recording of a job: its journal as JSON without secrets, from which the real core can be stepped again."""
