"""`python -P -E -m outrider.master`: the master of one local job, or of all jobs of a cluster."""

from __future__ import annotations

import sys

from outrider.master.main import main

if __name__ == "__main__":
    sys.exit(main())
