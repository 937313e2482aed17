"""The words of CONTRIBUTING.md, "How we write": what `tests/words.py` finds, and what it leaves alone."""

from __future__ import annotations

import pytest

from tests.words import found_in, long_sentences


@pytest.mark.parametrize(
    "line",
    [
        "The member is told to stop.",
        "Nobody holds it.",
        "This is no member.",
        "Where it fails, the job ends.",
        "It is made anew.",
        "Training goes on.",
        "It trains on, as ever.",
    ],
)
def test_a_habit_is_found_with_its_line(line: str) -> None:
    found = list(found_in("a.md", f"Fine.\n{line}\n"))
    assert found
    assert {each.line for each in found} == {2}


@pytest.mark.parametrize(
    "line", ["The pod is no longer there.", "Where to look first", "Training continues.", "an ongoing save"]
)
def test_plain_words_are_left_alone(line: str) -> None:
    assert not list(found_in("a.md", line))


def test_long_sentences_are_found_outside_of_code_and_tables() -> None:
    words = "word " * 26
    assert list(long_sentences(f"A short one. {words.strip()}.")) == [f"{words.strip()}."]
    assert not list(
        long_sentences(f"```\n{words}\n```\n\n| {words} |\n\n# {words}\n\n- {'word ' * 20}.\n- {'word ' * 20}.\n")
    )
