"""Tests of `outrider dashboard`."""
