"""`python -m outrider`: the command line."""

from __future__ import annotations

from outrider.cli.main import main, open_standard_descriptors

if __name__ == "__main__":
    open_standard_descriptors()
    main(prog_name="outrider")
