"""A scrubber that leaves every text as it is, to compare states before and after."""

from __future__ import annotations

from outrider.master.recording.scrubbing import Scrubber


class Open(Scrubber):
    def of_kind(self, kind: str, value: str) -> str:
        return value

    def untyped(self, value: str) -> str:
        return value
