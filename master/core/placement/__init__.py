"""Which pods the job needs, which rank index each has, and on which nodes they may run."""
