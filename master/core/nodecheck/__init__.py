"""The node check: how members are paired and measured, and which may train."""
