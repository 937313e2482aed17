"""What a sidecar may import too: the names and layouts that both sides of a member's volume know."""
