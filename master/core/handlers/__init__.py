"""Four tables of handlers: for events, messages, deadlines and occurrences."""
