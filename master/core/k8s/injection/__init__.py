"""The injection: the parts that the webhook adds to a pod, and the explanation."""
