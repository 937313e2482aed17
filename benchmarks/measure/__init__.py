"""What the benchmarks share: reading traces, finding and hurting processes, starting either launcher, reporting."""
