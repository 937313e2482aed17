"""The processes of a member: their tree, their ends, and the messages between them and the sidecar."""
