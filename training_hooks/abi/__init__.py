"""What sidecar and master may import too: the names and layouts that both sides of a member's volume know."""
