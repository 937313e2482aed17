"""The ranks' output: captured, written to files, searched for patterns."""
