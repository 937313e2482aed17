"""PURE. Kubernetes documents in both directions: no client, no clock, no decision about faults."""
