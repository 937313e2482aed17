"""`python -P -m outrider.sidecar`: one sidecar, told by its environment what it serves."""

from __future__ import annotations

import sys

from outrider.sidecar.shell.service import main

if __name__ == "__main__":
    sys.exit(main())
