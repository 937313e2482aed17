"""`python -P -m outrider.sidecar`: runs one sidecar, configured by its environment."""

from __future__ import annotations

import sys

from outrider.sidecar.shell.service import main

if __name__ == "__main__":
    sys.exit(main())
