"""The status document that users read, and what is always true of a state."""
