"""The training loss in what ranks print, without being told how: `loss: 2.31`, `train_loss=2.3`, `{'loss': 2.3}`.

A wrong number in a curve is worse than none. So a loss counts where its own name is a training's (`loss`, `train_loss`,
`total_loss`, `lm loss`), a loss with another word before it only where it is the only one of its line, and none where
the line speaks of an evaluation before it. Parts of a loss (`loss_cls`), averages over a whole run and `loss scale` are
none. Lines are other people's: every search here is bounded, however long a line is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from math import isfinite

LONGEST = 4096
"""Characters of a line that are looked at: the last ones, because a progress bar is redrawn behind itself."""
COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
LOSS = re.compile(
    r"""loss(?:_step)?(?![A-Za-z0-9_])['"]?"""
    r"""(?:\s+(?:at|after|for)\s+\w+\s+\d+)?(?:\s+train)?(?:\s*\(curr\))?"""  # TensorFlow's tutorials; litgpt
    r"""(?:\s*[:=]\s*|\s+is\s+|\s+)['"]?(?:tensor\()?"""
    r"""(?>([+-]?\d+(?:\.\d*)?(?:e[+-]?\d+)?))(?!\.?[\w%/])""",
    re.IGNORECASE,
)
BEFORE = 48
"""Characters before it in which its name and the word before that are."""
NAME = re.compile(r"(?:([A-Za-z]+)[ ]+)?([\w./-]*)\Z")
TRAINING = frozenset(["train", "training", "total", "lm", "avg", "average", "mean", "running", "batch", "current"])
OTHERS = re.compile(r"val(id(ation)?)?|eval(uation)?|test(ing)?|dev|best|min(imum)?|lowest|aux(iliary)?")
EVALUATES = re.compile(
    r"(?<![A-Za-z])(?:val|valid|validat(?:e|ion|ing)|eval|evaluat(?:e|ion|ing)|test(?:ing)?)(?![A-Za-z])", re.IGNORECASE
)
SUMMARY = re.compile(r"train_runtime|averaged stats", re.IGNORECASE)
"""The mean of a whole run, or of an epoch, told once more at its end."""


def losses(lines: Iterable[tuple[float, str]]) -> Iterator[tuple[float, float]]:
    """(time, loss) of those of (time, line) that say one."""
    for time, line in lines:
        if (loss := loss_in(line)) is not None:
            yield time, loss


def loss_in(line: str) -> float | None:
    """The training loss that a line says; None where it says none, or not beyond doubt. Of what a progress bar has
    drawn on one line, the newest."""
    if "loss" not in line[-LONGEST:].lower():
        return None
    drawn = COLOUR.sub("", line[-LONGEST:]).split("\r")
    return next((loss for each in reversed(drawn) if (loss := _said(each)) is not None), None)


def _said(line: str) -> float | None:
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
    """`training`, `doubtful` or `other`, by what stands before the word loss."""
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
