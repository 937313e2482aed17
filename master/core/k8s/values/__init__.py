"""Values and names of Kubernetes documents, each read and written in one place."""
