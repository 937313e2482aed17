"""The limits of texts in messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated


@dataclass(frozen=True, slots=True)
class Longest:
    """The most characters of a text. Longer `prose` is cut, because no report may be lost for a long sentence; else the
    message is refused, because half of a name is another name."""

    characters: int
    prose: bool = False


PROSE = Longest(500, prose=True)
"""The limit of every text without an annotation."""
ID = Longest(500)
"""The limit of every id; the longest one, a namespace with the name of a job in it, has 317 characters."""

Address = Annotated[str, Longest(255)]
Sentences = Annotated[str, Longest(2000, prose=True)]
Traceback = Annotated[str, Longest(8192, prose=True)]
Token = Annotated[str, Longest(16384)]
"""The token of a service account; one with many audiences has 2,000 characters."""
Ticket = Annotated[str, Longest(1024)]
Path = Annotated[str, Longest(4096)]
Print = Annotated[str, Longest(100)]
Pattern = Annotated[str, Longest(1000)]
Json = Annotated[str, Longest(1 << 19)]
