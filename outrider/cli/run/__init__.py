"""`outrider run`: its flags, the job that it hosts, what it shows of it."""
