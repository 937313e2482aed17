"""The command blocks of README.md and docs/: what each says of how it is run.

The line directly above a block of commands is a comment, which no reader sees:

    <!-- run: local -->               executed by tests/local/test_documented_commands.py, in order within a page
    <!-- run: cluster -->             executed by tests/cluster/test_documented_commands.py, in order within a page
    <!-- run: tests/FOLDER/FILE -->   executed by that test, which finds the block by its first words
    <!-- not run here: REASON -->     executed by no test, and why

A block with `title="NAME"` is a file: it is written before the commands of its page are executed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
COMMANDS = frozenset({"sh", "bash", "console"})
_TAG = re.compile(r"\s*<!-- ((?:not run here|run): .+) -->\s*$")
_OPEN = re.compile(r"(\s*)(```+|~~~+)\s*([\w+-]*)(.*)$")


class Block(NamedTuple):
    page: Path
    line: int
    language: str
    title: str
    tag: str
    """The comment above, without its marks; empty: there is none."""
    text: str

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def is_commands(self) -> bool:
        return self.language in COMMANDS


def blocks(page: Path) -> list[Block]:
    """Every fenced block of a page, in order."""
    return list(_blocks(page, page.read_text().splitlines()))


def _blocks(page: Path, lines: list[str]) -> Iterator[Block]:
    number = 0
    while number < len(lines):
        opened = _OPEN.match(lines[number])
        if opened is None:
            number += 1
            continue
        indent, fence, language, rest = opened.groups()
        end = next(n for n in range(number + 1, len(lines) + 1) if n == len(lines) or lines[n].strip() == fence)
        above = _TAG.match(lines[number - 1]) if number else None
        title = re.search(r'title="([^"]+)"', rest)
        text = "".join(line.removeprefix(indent) + "\n" for line in lines[number + 1 : end])
        yield Block(page, number + 1, language, title.group(1) if title else "", above.group(1) if above else "", text)
        number = end + 1


def commands() -> list[Block]:
    return [block for page in PAGES for block in blocks(page) if block.is_commands]


def pages_that_run(where: str) -> list[Path]:
    """The pages with at least one block that is run `local`ly or on a `cluster`."""
    return [page for page in PAGES if any(block.tag == f"run: {where}" for block in blocks(page))]


def beginning_with(words: str, tag: str) -> Block:
    """The one block of commands with this tag in all documents that begins with these words."""
    (found,) = (block for block in commands() if block.tag == tag and block.text.startswith(words))
    return found
