"""Links between members: which are slow or down, and the consequence (`generation.probe_ring` chooses the probes)."""
