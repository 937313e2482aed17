"""The language between sidecar and master: ids, messages, and the one codec that turns them into bytes."""
