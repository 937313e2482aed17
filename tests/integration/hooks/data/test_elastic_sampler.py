"""ElasticSampler with torch's own loader, in a process without Outrider."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.warm import Warm

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("plain torch")]  # they share a warm Python
Python = Callable[[str], str]
BEGIN = """
import sys
import torch
from torch.utils.data import BatchSampler, DataLoader
from training_hooks import ElasticSampler

torch.set_num_threads(1)
DATA = list(range(203))

def loader(world, rank, state=None, workers=0, **options):
    sampler = ElasticSampler(DATA, world, rank, **options)
    if state is not None:
        sampler.load_state_dict(state)
    return sampler, DataLoader(DATA, batch_size=4, sampler=sampler, num_workers=workers)

def optimizer():
    weight = torch.nn.Parameter(torch.zeros(1))
    weight.grad = torch.ones(1)
    return torch.optim.SGD([weight], lr=0.1)

def some(world, steps, state=None, workers=0):
    "What all ranks train on in so many steps (None: to the end), and the state of rank 0 then."
    step, seen, left = optimizer().step, [], None
    for rank in range(world):
        sampler, batches = loader(world, rank, state, workers)
        for number, batch in enumerate(batches):
            if number == steps:
                break
            step()
            seen += batch.tolist()
        left = left or sampler.state_dict()
    return seen, left
"""


@pytest.fixture
def python(warm: Warm, tmp_path: Path) -> Python:
    """Runs a script in a Python that has the installed package only; returns its output."""

    def run(text: str) -> str:
        (tmp_path / "train.py").write_text(BEGIN + text)
        done = warm.run(tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_successive_world_sizes_see_each_sample_once(python: Python) -> None:
    text = """
for workers in (0, 2):
    one, state = some(4, 3, workers=workers)
    two, state = some(3, 4, state, workers)
    three, state = some(4, None, state, workers)
    seen = one + two + three
    assert sorted(set(seen)) == DATA and len(seen) - 203 < 4, len(seen)
    assert state["consumed"] == 203 and state["epoch"] == 0, state
print("well")
"""
    assert python(text) == "well\n"


def test_only_samples_with_an_optimizer_step_count(python: Python) -> None:
    text = """
for workers in (0, 2):
    sampler, batches = loader(2, 0, workers=workers)
    step = optimizer().step
    found = []
    for number, batch in enumerate(batches):
        found.append(sampler.state_dict()["consumed"])
        if number % 2:
            step()
        found.append(sampler.state_dict()["consumed"])
        if number == 3:
            break
    print(found)
"""
    assert python(text).splitlines() == ["[0, 0, 0, 16, 16, 16, 16, 32]"] * 2


def test_without_an_optimizer_a_batch_counts_when_the_next_is_requested(python: Python) -> None:
    text = """
sampler, batches = loader(2, 0)
print([sampler.state_dict()["consumed"] for batch in batches][:4])
"""
    assert python(text) == "[0, 8, 16, 24]\n"


def test_its_length_is_the_rest_until_the_next_pass(python: Python) -> None:
    text = """
_, state = some(4, 3)
sampler, batches = loader(3, 0, state)
step = optimizer().step
found = [len(sampler), len(batches)]
for batch in batches:
    step()
found += [len(batches)]
sampler.set_epoch(1)
found += [len(sampler), len(batches)]
print(found, sum(len(batch) for batch in batches))
"""
    assert python(text) == "[52, 13, 13, 68, 17] 68\n"


def test_a_script_with_its_own_batches_passes_the_consumed_samples(python: Python) -> None:
    text = """
seen = []
for rank in range(2):
    sampler = ElasticSampler(DATA, 2, rank)
    for number, batch in enumerate(DataLoader(DATA, batch_sampler=BatchSampler(sampler, 5, False))):
        seen += batch.tolist()
        if number == 3:
            break
state = sampler.state_dict(consumed=20)
seen += some(3, None, state)[0]
assert sorted(set(seen)) == DATA and len(seen) - 203 < 3, len(seen)
print("well")
"""
    assert python(text) == "well\n"


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("None", "state: Invalid value: None: must be an ElasticSampler state of version 1"),
        ("{'version': 2}", "must be an ElasticSampler state of version 1"),
        ("{'version': 1}", "must describe a position in an epoch"),
        ("dict(good, consumed=999)", "must describe a position in an epoch"),
        ("dict(good, length=204)", "state: Invalid value: length 204: must be 203, as in this sampler"),
        ("dict(good, seed=1)", "state: Invalid value: seed 1: must be 0, as in this sampler"),
        ("dict(good, shuffle=False)", "state: Invalid value: shuffle False: must be True, as in this sampler"),
    ],
)
def test_a_foreign_state_is_refused(python: Python, state: str, said: str) -> None:
    text = f"""
sampler, _ = loader(2, 0)
good = sampler.state_dict()
try:
    sampler.load_state_dict({state})
except ValueError as error:
    print(error)
"""
    assert said in python(text)


def test_a_whole_pass_is_torchs_own(python: Python) -> None:
    text = """
from torch.utils.data.distributed import DistributedSampler
for options in ({}, {"shuffle": False}, {"drop_last": True}, {"seed": 3}):
    for rank in range(3):
        mine, theirs = ElasticSampler(DATA, 3, rank, **options), DistributedSampler(DATA, 3, rank, **options)
        for epoch in (0, 1):
            mine.set_epoch(epoch), theirs.set_epoch(epoch)
            assert list(mine) == list(theirs) and len(mine) == len(theirs)
print("well")
"""
    assert python(text) == "well\n"


def test_any_other_name_is_not_there() -> None:
    import training_hooks

    missing: Any = training_hooks
    with pytest.raises(AttributeError, match="no attribute 'RubberSampler'"):
        missing.RubberSampler  # noqa: B018
