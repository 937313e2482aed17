"""Links between members: which is slow or cut, and what follows (`generation.probe_ring` says who probes whom)."""
