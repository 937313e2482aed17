"""Pods: built from a template, read back, and validated for supervision."""
