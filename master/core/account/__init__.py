"""The time account: every second of every member has one cause."""
