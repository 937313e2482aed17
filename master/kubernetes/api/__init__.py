"""The API server: requests, watches, and what is done while it is away."""
