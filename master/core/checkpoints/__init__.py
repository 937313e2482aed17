"""Checkpoints in members' memories, planned saves, and what users are told of either."""
