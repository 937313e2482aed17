"""What a rehearsal has found: whether the script, as it is now, would come through its imports (`training_hooks`).

The restart of a job whose next ranks would end at once is refused, and nothing was stopped for it.
"""

from __future__ import annotations

from collections.abc import Iterable

MOST_CHARACTERS = 1000


def refusal(answers: Iterable[object]) -> str:
    """Why the script cannot be begun again, in a member's own words; "" where none says so. A member of an older
    release does not know the question, and a launcher of another language cannot answer it: they refuse nothing."""
    return _said(answers, "refused")


def sentence(why: str) -> str:
    return f"The restart is refused, and nothing was stopped: {why.rstrip('.')}."


def unchecked(answers: Iterable[object]) -> str:
    """Why it could not be tried; "" where it was, or no member said why not."""
    return _said(answers, "unchecked")


def _said(answers: Iterable[object], word: str) -> str:
    for answer in answers:
        why = answer.get(word) if isinstance(answer, dict) else None
        if isinstance(why, str) and why:
            return why[:MOST_CHARACTERS]
    return ""
