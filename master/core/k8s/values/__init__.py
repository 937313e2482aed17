"""Values and names in Kubernetes documents, each read and written in one place."""
