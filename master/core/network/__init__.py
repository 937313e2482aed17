"""Links between members: who probes whom, what is cut, and what follows."""
