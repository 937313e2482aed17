"""JSON of any depth. The parser gives up at a thousand objects within one another, and the API server stores ten times
as many: one such document would hide a whole list, so that what is nested too deeply is cut out of it."""

from __future__ import annotations

import json
import re
from typing import Any

CUT_BELOW = 300
"""Far deeper than `shapes.MOST_NESTED` allows a document to be, so that none is cut that is allowed."""
CUT = '"nested too deeply"'
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')


def read(raw: bytes) -> Any:
    """Raises ValueError where it is no JSON."""
    try:
        return json.loads(raw)
    except RecursionError:
        return json.loads("".join(_cut(raw.decode(errors="replace"))))


def _cut(text: str) -> list[str]:
    """The text with each object or list at that depth replaced."""
    kept, depth, begins = [], 0, 0
    for token in _TOKEN.finditer(text):
        if token.group() in ("{", "["):
            depth += 1
            if depth == CUT_BELOW + 1:
                kept += [text[begins : token.start()], CUT]
        elif token.group() in ("}", "]"):
            if depth == CUT_BELOW + 1:
                begins = token.end()
            depth -= 1
    return [*kept, text[begins:]]
