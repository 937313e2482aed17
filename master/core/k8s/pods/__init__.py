"""Pods: made from a template, and read back."""
