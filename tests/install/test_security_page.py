"""docs/security.md claims what tests hold: each that it names is there, and each claim names one or says why none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/.-]+\.py)::(\w+)`", PAGE)))


def claims() -> Iterator[tuple[str, str]]:
    """The rows of tables that are headed `claim`."""
    heading = ""
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        heading = "" if not cells else heading or cells[0]
        if heading == "claim" and len(cells) == 2 and cells[0] != "claim" and set(cells[0]) != {"-"}:
            yield cells[0], cells[1]


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_a_test_that_the_page_names_is_there(file: str, test: str) -> None:
    assert re.search(rf"^(async )?def {test}\(", (ROOT / file).read_text(), re.MULTILINE)


def test_each_claim_has_a_test_or_says_why_not() -> None:
    found = list(claims())
    assert len(found) > 20
    bare = [claim for claim, held in found if "::" not in held and not held.startswith("not tested: ")]
    assert bare == []
