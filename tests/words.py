"""Finds the habits that make our sentences hard to read: `python -m tests.words [PATH]...`.

The rules are in CONTRIBUTING.md, "How we write".

Prints `path:line: what was found: what to write`, and exits with 1 if a file outside tests/ has more of them than
`ALLOWED`. README.md must have no sentence above 25 words.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

HABITS = {
    r"\btold\b": "reported, logged or sent, with the subject named",
    r"\b(?:nobody|whoever|somebody)\b": "the noun: no member, the user, another process",
    r"(?<!there )\b(?:is|are|was|were) no (?!longer\b|more than\b)\w": "is not a ...",
    r"(?:^|[.!?;:] |# |\"\"\")Where (?!to\b|the time\b|it is )": "If ...",
    r"\banew\b": "again",
    r"\b(?:goes|go|went|going|gone) on\b": "continues",
    r"\b(?:trains|train|trained) on(?= (?:while|meanwhile|unsupervised|as)\b|[.,;:])": "continues training",
    r"\bas ever\b": "as before",
    r"\bby no means\b|\bat the least\b|\ball the same\b": "at least; still",
}
CHECKED = re.compile(r"\.(?:py|md|yaml|yml|toml)$|^Makefile$|Dockerfile|outrider-(?:launch|sidecar)$")
SKIPPED = re.compile(r"^tests/|^CHANGELOG\.md$")
ALLOWED = 30
"""The glossary itself, names of files and persisted fields, and a few that read well."""
README_WORDS = 25


class Found(NamedTuple):
    path: str
    line: int
    text: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text!r}: {self.instead}"


def found_in(path: str, text: str) -> Iterator[Found]:
    """Every habit in the text of one file."""
    for number, line in enumerate(text.splitlines(), 1):
        for habit, instead in HABITS.items():
            for match in re.finditer(habit, line, 0 if "Where" in habit else re.IGNORECASE):
                yield Found(path, number, match.group().strip(), instead)


def long_sentences(text: str, most: int = README_WORDS) -> Iterator[str]:
    """The sentences of a Markdown text with more than `most` words, without code blocks, tables and pictures."""
    prose = re.sub(r"```.*?```|<!--.*?-->", "\n\n", text, flags=re.DOTALL)
    lines = ["" if re.match(r"\s*(?:\||#|!\[|<)", line) else re.sub(r"^\s*(?:[-*]|\d+\.) ", "\n\n", line)
             for line in prose.splitlines()]  # fmt: skip
    for paragraph in re.split(r"\n\s*\n", "\n".join(lines)):
        for sentence in re.split(r"(?<=[.!?:])\s+", re.sub(r"\]\([^)]*\)", "]", paragraph).strip()):
            if len(sentence.split()) > most:
                yield " ".join(sentence.split())


def tracked(paths: list[str]) -> list[str]:
    """The files of the repository that are read, below `paths` if there are any."""
    listed = subprocess.run(("git", "ls-files", *paths), capture_output=True, text=True, check=True).stdout.splitlines()
    return [
        path for path in listed if CHECKED.search(path) and not SKIPPED.search(path) and not Path(path).is_symlink()
    ]


def main(paths: list[str]) -> int:
    found = [each for path in tracked(paths) for each in found_in(path, Path(path).read_text())]
    long = [] if paths else list(long_sentences(Path("README.md").read_text()))
    if paths or len(found) > ALLOWED:
        print(*found, sep="\n")
    for sentence in long:
        print(f"README.md: {len(sentence.split())} words, of {README_WORDS} at most: {sentence}")
    if not paths and len(found) > ALLOWED:
        print(f"{len(found)} of the habits above, {ALLOWED} at most")
    return int(len(found) > ALLOWED or bool(long))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
