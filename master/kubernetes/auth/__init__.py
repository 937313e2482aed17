"""Who a sidecar or a reader of metrics is, and the keys that replicas share."""
