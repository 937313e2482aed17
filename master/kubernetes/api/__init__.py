"""The API server: requests, watches and outages."""
