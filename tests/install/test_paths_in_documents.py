"""What the documents say of where a thing is, is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "manifests").glob("*.md"))
    if path.name != "CHANGELOG.md"
]
PATH = re.compile(
    r"(?<![\w/.-])((?:benchmarks|examples|manifests|master|outrider|sidecar|tests|training_hooks)/[\w./-]+\.(?:py|yaml|sh|md))"
)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_each_file_that_a_document_names_is_there(document: str) -> None:
    text = (ROOT / document).read_text()
    assert [path for path in PATH.findall(text) if not (ROOT / path).exists()] == []
