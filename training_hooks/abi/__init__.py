"""Names and layouts that hooks and sidecar share; a sidecar may import this package."""
