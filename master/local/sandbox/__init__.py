"""`outrider run --isolate`: namespaces and cgroups for each member."""
