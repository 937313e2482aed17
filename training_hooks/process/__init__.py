"""Processes of the member: their tree and ends, and the lines between them and the sidecar."""
