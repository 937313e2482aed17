"""Faults made on purpose: `outrider chaos`."""
