"""Talks to the API server, in documents; what is decided of them is in `outrider.master.core.k8s`."""
