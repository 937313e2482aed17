"""Links between members: which are slow or down, and the consequence (`generation.probe_ring` has who probes whom)."""
