"""The ranks' output: captured, kept in files, searched for patterns."""
