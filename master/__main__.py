"""`python -P -E -m outrider.master`: one job's master, told by its environment what it serves."""

from __future__ import annotations

import sys

from outrider.master.main import main

if __name__ == "__main__":
    sys.exit(main())
