"""Keeps distributed training running: the command line, the master, the sidecar, and what they share."""

from __future__ import annotations


def __getattr__(name: str) -> str:
    if name == "__version__":
        from importlib.metadata import version

        return version("outrider")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
