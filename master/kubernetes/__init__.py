"""Exchanges documents with the API server; decisions about them are made in `outrider.master.core.k8s`."""
