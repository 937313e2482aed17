"""PURE. What Kubernetes says and is told, as documents: no client, no clock, no decision about faults."""
