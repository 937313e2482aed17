"""A lent state never changes by itself, whatever is saved over it: real memory, real torch, real forks."""

from __future__ import annotations

import gc
import os
import re
from pathlib import Path
from typing import Any

import pytest

from training_hooks.abi import arena
from training_hooks.checkpoints import cow_tensors

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("torch")]

TENSORS, NUMBERS = 4, 1 << 18


def memory(folder: Path, local_rank: int = 0) -> Any:
    from training_hooks.checkpoints import memory_tier

    arena.allot(arena.path_of(str(folder)), 48 << 20)
    return memory_tier.Memory(str(folder), local_rank, 2)


def saved(rank: Any, step: int, kind: int = arena.REPLICATED) -> None:
    import torch

    from training_hooks.checkpoints import state_codec

    packed = state_codec.Packed({n: torch.full((NUMBERS,), float(step + n)) for n in range(TENSORS)})
    about = arena.Head(arena.VERSION, 0, step, 1, 0, 2, kind, 0, packed.length, 0, 0)
    assert rank.take(packed, about).seal()


def loaded(rank: Any, step: int, kind: int = arena.REPLICATED, map_location: object = "cpu") -> dict[int, Any]:
    copy = next(each for each in rank.copies(kind) if each.head.step == step)
    assert copy.is_sound()
    found: dict[int, Any] = copy.state(map_location)
    return found


def is_of(state: dict[int, Any], step: int) -> bool:
    return all(bool((tensor == step + n).all()) for n, tensor in state.items())


def mapped_bytes(folder: Path) -> int:
    """Of this process's private mappings of that folder's memory."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    spans = [line.split()[0].split("-") for line in lines if re.search(rf" rw-p .* {folder}/", line)]
    return sum(int(end, 16) - int(begin, 16) for begin, end in spans)


@pytest.mark.parametrize("kind", [arena.REPLICATED, arena.SHARDED])
def test_a_loaded_state_is_not_changed_by_later_saves(tmp_path: Path, kind: int) -> None:
    rank = memory(tmp_path)
    saved(rank, 10, kind)
    state = loaded(rank, 10, kind)
    assert mapped_bytes(tmp_path) > 4 * TENSORS * NUMBERS, "it lies in the memory"
    for step in (20, 30, 40):
        saved(rank, step, kind)
        assert is_of(state, 10)
    assert is_of(loaded(rank, 40, kind), 40)


def test_writes_to_a_loaded_state_do_not_reach_the_memory(tmp_path: Path) -> None:
    rank = memory(tmp_path)
    saved(rank, 10)
    state, other = loaded(rank, 10), loaded(rank, 10)
    state[1][5:] += 1
    assert is_of(other, 10)
    assert is_of(loaded(rank, 10), 10)
    for step in (20, 30):
        saved(rank, step)
    assert state[1][:5].tolist() == [11] * 5
    assert set(state[1][5:].tolist()) == {12}
    assert is_of({n: tensor for n, tensor in state.items() if n != 1}, 10)
    assert is_of(other, 10)


def test_a_new_division_of_the_memory_does_not_change_a_loaded_state(tmp_path: Path) -> None:
    rank = memory(tmp_path)
    saved(rank, 10)
    saved(rank, 20)
    old, new = loaded(rank, 10), loaded(rank, 20)
    for step in (30, 40):
        saved(rank, step, arena.SHARDED)
    assert is_of(old, 10)
    assert is_of(new, 20)


def test_a_forked_process_keeps_the_state_loaded_before(tmp_path: Path) -> None:
    rank = memory(tmp_path)
    saved(rank, 10)
    state = loaded(rank, 10)
    go, reported = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        os.read(go[0], 1)
        same = all(set(tensor.numpy().tolist()) == {10 + n} for n, tensor in state.items())  # no OpenMP behind a fork
        os.write(reported[1], b"1" if same else b"0")
        os._exit(0)
    for step in (20, 30, 40):
        saved(rank, step)
    os.write(go[1], b"!")
    assert os.read(reported[0], 1) == b"1"
    os.waitpid(child, 0)
    for fd in (*go, *reported):
        os.close(fd)


def test_one_tensor_keeps_its_own_bytes_and_the_rest_is_freed(tmp_path: Path) -> None:
    rank = memory(tmp_path)
    saved(rank, 10)
    state = loaded(rank, 10)
    kept = {2: state.pop(2)[100:200]}
    state.clear()
    gc.collect()
    for step in (20, 30):
        saved(rank, step)
    assert is_of(kept, 10)
    kept.clear()
    gc.collect()
    assert mapped_bytes(tmp_path) == 0


@pytest.mark.parametrize(("local_rank", "map_location"), [(1, "cpu"), (0, lambda storage, device: storage)])
def test_shared_memory_or_another_device_gives_copies(tmp_path: Path, local_rank: int, map_location: object) -> None:
    writer, reader = memory(tmp_path), memory(tmp_path, local_rank)
    saved(writer, 10)
    state = loaded(reader, 10, map_location=map_location)
    assert mapped_bytes(tmp_path) == 0
    for step in (20, 30):
        saved(writer, step)
    assert is_of(state, 10)


def test_a_slot_that_was_overwritten_since_lends_nothing(tmp_path: Path) -> None:
    rank = memory(tmp_path)
    saved(rank, 10)
    copy = rank.copies(arena.REPLICATED)[0]
    for step in (20, 30):
        saved(rank, step)
    assert rank.loan(copy) is None
    assert not copy.is_sound()


def test_a_file_that_cannot_be_mapped_lends_nothing() -> None:
    out, into = os.pipe()
    with open(out, "rb"), open(into, "wb"), pytest.raises(OSError, match="No such device"):
        cow_tensors.Loan(out, 0, 4096)
