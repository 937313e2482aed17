"""How long a text of a message may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated


@dataclass(frozen=True, slots=True)
class Longest:
    """Characters of a text. A longer one is cut where it is `prose`, because no report may be lost for a long sentence;
    else its message is refused: half of a name is another name."""

    characters: int
    prose: bool = False


PROSE = Longest(500, prose=True)
"""Of every text that says nothing else."""
ID = Longest(500)
"""Of every id: the longest there is, a namespace and the name of a job in it, has 317."""

Address = Annotated[str, Longest(255)]
Sentences = Annotated[str, Longest(2000, prose=True)]
Traceback = Annotated[str, Longest(8192, prose=True)]
Token = Annotated[str, Longest(16384)]
"""A service account's with many audiences has 2,000."""
Ticket = Annotated[str, Longest(1024)]
Path = Annotated[str, Longest(4096)]
Print = Annotated[str, Longest(100)]
Pattern = Annotated[str, Longest(1000)]
Json = Annotated[str, Longest(1 << 19)]
