"""Each block of commands in README.md and docs/ is executed by a test, or says why not (`tests.documented`)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.documented import PAGES, ROOT, Block, blocks, commands

BLOCKS = [block for page in PAGES for block in blocks(page)]
TAG = re.compile(r"run: (local|cluster|tests/\S+\.py)|not run here: \S.*")


def untagged(block: Block) -> bool:
    return block.is_commands and TAG.fullmatch(block.tag) is None


def test_each_block_of_commands_is_run_or_says_why_not() -> None:
    assert [block.where for block in BLOCKS if untagged(block)] == []


def test_each_block_names_its_language() -> None:
    """One without a language could be commands, and no test would ask for its tag."""
    assert [block.where for block in BLOCKS if not block.language] == []


def test_a_tag_stands_above_commands_alone() -> None:
    assert [block.where for block in BLOCKS if block.tag and not block.is_commands] == []


def test_a_test_that_runs_a_block_is_there() -> None:
    named = {found.group(1) for block in commands() if (found := re.fullmatch(r"run: (tests/\S+)", block.tag))}
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []


def test_a_block_without_a_tag_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- run: local -->\n```sh\na\n```\n\n```sh\nb\n```\n\n```text\nc\n```\n")
    assert [untagged(block) for block in blocks(page)] == [False, True, False]


@pytest.mark.parametrize("tag", ["<!-- run: somewhere -->", "<!-- not run here: -->", "", "<!-- not run here:  -->"])
def test_a_tag_that_says_nothing_is_none(tag: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{tag}\n```sh\na\n```\n")
    assert [untagged(block) for block in blocks(page)] == [True]


def test_a_block_with_a_title_is_a_file(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text('- a\n\n    ```python title="train.py"\n    if 1:\n        pass\n    ```\n')
    assert [(block.title, block.text) for block in blocks(page)] == [("train.py", "if 1:\n    pass\n")]
