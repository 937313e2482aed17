"""Injected faults: `outrider chaos`."""
