"""In-memory checkpoints and their replicas, planned saves, and the Events about both."""
