"""Access to a cluster with the user's own credentials: its API, its YAML, diagnostics of its pods."""
