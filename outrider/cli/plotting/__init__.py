"""`outrider plot`: draws a job over time, as a picture or a table."""
