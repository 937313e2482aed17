"""What a master's exit code says to whoever started it.

A module of its own: the node needs no more than this of the master, whose service costs half a second to import.
"""

ENDED = 0
"""Exit code: the job is over, its own exit code is in its status."""
WRONG_SETTING = 2
"""The start was stopped by what the environment says: starting again would not help."""
ADDRESS_TAKEN = 98
"""The endpoint cannot be bound (EADDRINUSE)."""
LEASE_HELD = 75
"""Another master is alive (EX_TEMPFAIL)."""
