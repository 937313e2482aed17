"""The protocol between sidecar and master: ids, messages, and the codec that turns them into bytes."""
