"""Exit codes of a master.

They have their own module because the local node needs only them, and the master's service takes half a second to
import.
"""

ENDED = 0
"""Exit code if the job is over; the job's own exit code is in its status."""
WRONG_SETTING = 2
"""Exit code for an invalid setting in the environment, which a restart would not fix."""
ADDRESS_TAKEN = 98
"""Exit code if the endpoint cannot be bound (EADDRINUSE)."""
LEASE_HELD = 75
"""Exit code if another master is running (EX_TEMPFAIL)."""
