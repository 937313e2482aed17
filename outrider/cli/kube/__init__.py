"""The user's own way to a cluster: its API, its YAML, questions to its pods."""
