"""Where a command keeps its jobs, as in the other tests of the command line."""

from __future__ import annotations

from tests.unit.cli.conftest import home as home
