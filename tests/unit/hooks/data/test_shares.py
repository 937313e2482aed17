"""The arithmetic of an epoch: each sample comes once, whatever world sizes train on it in turn."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training_hooks.data import sharding

lengths = st.integers(1, 400)
worlds = st.integers(1, 9)
batch_sizes = st.integers(1, 12)


def of_all(order: list[int], start: int, whole: int, world: int, drop_last: bool = False, drop_batch: bool = False):
    """Each rank's batches."""
    found = []
    for rank in range(world):
        mine = sharding.indices(order, start, whole, world, rank, drop_last, drop_batch)
        assert len(mine) == sharding.count(len(order), start, whole, world, rank, drop_last, drop_batch)
        own = sharding.share(whole, world, rank)
        batches = [mine[at : at + own] for at in range(0, len(mine), own)]
        found.append([batch for batch in batches if len(batch) == own or not drop_batch])
    return found


@pytest.mark.xdist_group("torch")
@given(lengths, worlds, batch_sizes, st.booleans())
def test_at_one_world_size_it_is_torchs_sampler_to_the_index(
    length: int, world: int, batch: int, drop_last: bool
) -> None:
    if drop_last and length < world:
        return  # torch's own gives nothing there, and says -1 of it
    from torch.utils.data.distributed import DistributedSampler

    for rank in range(world):
        sampler = DistributedSampler(range(length), world, rank, shuffle=False, drop_last=drop_last)
        mine = sharding.indices(list(range(length)), 0, batch * world, world, rank, drop_last)
        assert mine == list(sampler)
        assert len(sampler) == sharding.count(length, 0, batch * world, world, rank, drop_last)


@given(lengths, worlds, batch_sizes, st.integers(0, 40))
def test_a_resume_at_the_same_world_size_is_the_rest_of_torchs_list(
    length: int, world: int, batch: int, steps: int
) -> None:
    whole, order = batch * world, list(range(length))
    start = sharding.consumed(length, 0, whole, steps)
    for rank in range(world):
        undisturbed = sharding.indices(order, 0, whole, world, rank)
        assert sharding.indices(order, start, whole, world, rank) == undisturbed[steps * batch :]


@given(
    lengths, st.lists(st.tuples(worlds, batch_sizes, st.integers(0, 30)), min_size=1, max_size=6), st.integers(0, 40)
)
def test_successive_world_sizes_see_each_sample_once_except_the_padding(
    length: int, sequence: list[tuple[int, int, int]], kept: int
) -> None:
    """`kept`: a global batch that stays the same at all world sizes, if it is larger than them."""
    order = list(range(length))
    Random(length).shuffle(order)
    start, seen = 0, Counter[int]()
    for world, batch, steps in sequence[:-1]:
        whole = kept if kept > 9 else world * batch
        ranks = of_all(order, start, whole, world)
        steps = min(steps, len(ranks[0]) - 1)
        for step in range(steps):
            seen.update(sample for rank in ranks for sample in rank[step])
        start = sharding.consumed(length, start, whole, max(steps, 0))
    world, batch, _ = sequence[-1]
    ranks = of_all(order, start, kept if kept > 9 else world * batch, world)
    seen.update(sample for rank in ranks for batches in rank for sample in batches)
    assert sorted(seen) == list(range(length))
    assert seen.total() - length < world


@given(lengths, worlds, st.integers(1, 60), st.integers(0, 200), st.booleans(), st.booleans())
def test_all_ranks_make_the_same_number_of_steps(
    length: int, world: int, whole: int, start: int, drop_last: bool, drop_batch: bool
) -> None:
    if whole < world:
        return
    order, start = list(range(length)), min(start, length)
    ranks = of_all(order, start, whole, world, drop_last, drop_batch)
    assert len({len(batches) for batches in ranks}) == 1
    counts = Counter(sample for batches in ranks for batch in batches for sample in batch)
    extra = sum(n - 1 for n in counts.values())
    assert extra < world if not drop_last else extra == 0
    for step in range(len(ranks[0])):
        sizes = [len(batches[step]) for batches in ranks]
        assert max(sizes) - min(sizes) <= 1
        assert sizes == sorted(sizes, reverse=True), "the first ranks have one more"
        assert sum(sizes) == whole or step == len(ranks[0]) - 1


@given(st.integers(1, 64), worlds)
def test_a_global_batch_is_shared_without_rest(whole: int, world: int) -> None:
    parts = [sharding.share(whole, world, rank) for rank in range(world)]
    assert sum(parts) == whole
    assert parts == sorted(parts, reverse=True)
