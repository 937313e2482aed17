"""What the webhook adds to a pod, or why it does not."""
