"""Finds the training loss in lines of ranks, in any usual form: `loss: 2.31`, `train_loss=2.3`, `{'loss': 2.3}`.

A wrong number in a curve is worse than none. So a loss counts if its name means training (`loss`, `train_loss`,
`total_loss`, `lm loss`). A loss with another word before it counts only if it is the only one in its line, and none
counts if the line mentions an evaluation before it. Parts of a loss (`loss_cls`), averages over a whole run and `loss
scale` do not count. Users' lines may be of any length, so every search here is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from math import isfinite

LONGEST = 4096
"""The number of characters at the end of a line that are searched: a progress bar redraws itself at the end."""
COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
LOSS = re.compile(
    r"""loss(?:_step)?(?![A-Za-z0-9_])['"]?"""
    r"""(?:\s+(?:at|after|for)\s+\w+\s+\d+)?(?:\s+train)?(?:\s*\(curr\))?"""  # TensorFlow's tutorials; litgpt
    r"""(?:\s*[:=]\s*|\s+is\s+|\s+)['"]?(?:tensor\()?"""
    r"""(?>([+-]?\d+(?:\.\d*)?(?:e[+-]?\d+)?))(?!\.?[\w%/])""",
    re.IGNORECASE,
)
BEFORE = 48
"""The number of characters before the word loss that may hold its full name and the word before it."""
NAME = re.compile(r"(?:([A-Za-z]+)[ ]+)?([\w./-]*)\Z")
TRAINING = frozenset(["train", "training", "total", "lm", "avg", "average", "mean", "running", "batch", "current"])
OTHERS = re.compile(r"val(id(ation)?)?|eval(uation)?|test(ing)?|dev|best|min(imum)?|lowest|aux(iliary)?")
EVALUATES = re.compile(
    r"(?<![A-Za-z])(?:val|valid|validat(?:e|ion|ing)|eval|evaluat(?:e|ion|ing)|test(?:ing)?)(?![A-Za-z])", re.IGNORECASE
)
SUMMARY = re.compile(r"train_runtime|averaged stats", re.IGNORECASE)
"""Lines with the mean of a whole run or of an epoch, which frameworks print at its end."""


def losses(lines: Iterable[tuple[float, str]]) -> Iterator[tuple[float, float]]:
    """(time, loss) of each (time, line) that has a loss."""
    for time, line in lines:
        if (loss := loss_in(line)) is not None:
            yield time, loss


def loss_in(line: str) -> float | None:
    """The training loss in a line; None if there is none, or not without doubt. If a progress bar was drawn several
    times on the line, the newest loss."""
    if "loss" not in line[-LONGEST:].lower():
        return None
    drawn = COLOUR.sub("", line[-LONGEST:]).split("\r")
    return next((loss for each in reversed(drawn) if (loss := _found(each)) is not None), None)


def _found(line: str) -> float | None:
    if SUMMARY.search(line):
        return None
    doubtful = []
    for match in LOSS.finditer(line):
        kind, number = _kind(line, match.start()), float(match.group(1))
        if kind == "training" and isfinite(number):
            return number
        if kind == "doubtful" and isfinite(number):
            doubtful.append(number)
    return doubtful[0] if len(doubtful) == 1 else None


def _kind(line: str, at: int) -> str:
    """`training`, `doubtful` or `other`, by the text before the word loss."""
    name = NAME.search(line[max(0, at - BEFORE) : at])
    word, prefix = (name.group(1) or "", name.group(2)) if name else ("", "")
    parts = {part for part in re.split(r"[_./-]+", prefix.lower()) if part}
    word = word.lower()
    if not parts <= TRAINING or (OTHERS.fullmatch(word) and not parts):
        return "other"
    if "train" in parts or "training" in parts or word in ("train", "training"):
        return "training"
    if EVALUATES.search(line, 0, at):
        return "other"
    return "training" if parts or not word or word in TRAINING else "doubtful"
