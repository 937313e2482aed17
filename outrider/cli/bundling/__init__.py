"""Bundles: one archive with what happened to a job, made by an allow-list, and the reader of such archives."""
