"""The losses of `training.SCRIPT` in a run to which nothing happens.

Its batches depend on the step alone and are the same on all ranks, so that the loss of a step is the same in worlds of
every size, and after any number of faults: whatever is lost, repeated or restored wrongly shows in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

SPREAD = 1e-4
"""Rounding: the mean of three equal gradients is not always the gradient."""
_known: list[float] = []
_run: Iterator[float] | None = None


def loss(step: int) -> float:
    """Of this step, counted from 1."""
    global _run
    _run = _run or _losses()
    _known.extend(islice(_run, max(step - len(_known), 0)))
    return _known[step - 1]


def _losses() -> Iterator[float]:
    import torch  # takes seconds, and most tests do not need it

    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = torch.nn.Linear(8, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    step = 0
    while True:
        step += 1
        optimizer.zero_grad()
        generator = torch.Generator().manual_seed(step)
        x, y = torch.randn(4, 8, generator=generator), torch.randn(4, 2, generator=generator)
        found = (net(x) - y).square().mean()
        found.backward()
        optimizer.step()
        yield found.item()
