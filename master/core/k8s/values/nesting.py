"""A JSON reader that cuts out values that are nested too deeply.

Python's parser fails at about 1000 levels, and the API server stores ten times as many: without the cut, one such
document would make a whole list unreadable.
"""

from __future__ import annotations

import json
import re
from typing import Any

CUT_BELOW = 300
"""Nesting depth below which values are cut: far more than `shapes.MOST_NESTED`, so no valid document is cut."""
CUT = '"nested too deeply"'
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')


def read(raw: bytes) -> Any:
    """The parsed JSON. Raises ValueError if the text is not JSON."""
    try:
        return json.loads(raw)
    except RecursionError:
        return json.loads("".join(_cut(raw.decode(errors="replace"))))


def _cut(text: str) -> list[str]:
    """The text in parts, with `CUT` instead of each object or list at that depth."""
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
