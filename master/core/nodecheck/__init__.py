"""The node check: who measures with whom, and who may train."""
