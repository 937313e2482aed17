"""Authenticates sidecars and readers of metrics, and keeps the keys that replicas share."""
