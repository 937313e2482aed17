"""The result of a rehearsal: whether the script, as it is now, would get through its imports (`training_hooks`).

If the next ranks would end at once, the restart is refused, and no rank is stopped for it.
"""

from __future__ import annotations

from collections.abc import Iterable

MOST_CHARACTERS = 1000


def refusal(answers: Iterable[object]) -> str:
    """Why the script cannot start again, as a member reports it; "" if no member does.

    A member of an older release does not know the request, and a launcher in another language cannot answer it: they
    refuse nothing.
    """
    return _first_reason(answers, "refused")


def sentence(why: str) -> str:
    """The message of a refused restart."""
    return f"The restart is refused, and no rank was stopped: {why.rstrip('.')}."


def unchecked(answers: Iterable[object]) -> str:
    """Why the rehearsal could not be made; "" if it was made, or no member reports why not."""
    return _first_reason(answers, "unchecked")


def _first_reason(answers: Iterable[object], key: str) -> str:
    for answer in answers:
        why = answer.get(key) if isinstance(answer, dict) else None
        if isinstance(why, str) and why:
            return why[:MOST_CHARACTERS]
    return ""
