"""What the webhook adds to a pod, and why."""
