"""`training_hooks.checkpoint` in real ranks with real torch: the next generation loads the saves in memory."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from outrider.runtime.ports import find_port
from outrider.sidecar.shell.arena import copies, opened
from tests.integration.hooks.agent import Trainer
from tests.integration.hooks.memories import SAY, damage, generation, said, trainers
from tests.tiers import witnesses
from tests.warm import Warm
from training_hooks.abi import arena

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("warm")]

BEGIN = (
    SAY
    + """
from training_hooks import checkpoint
if WORLD > 1:
    dist.init_process_group("gloo")

def state(step, rank=0):
    shared = torch.full((1000,), float(step * 10 + rank))
    return {"w": shared, "view": shared[10:20], "step": step, "none": None}

def reported(found):
    if found is None:
        return None
    state, step = found
    same = set(state["w"].tolist())
    assert len(same) == 1 and state["view"].data_ptr() == state["w"].data_ptr() + 40, state
    return [step, int(same.pop())]

def tried(call):
    try:
        return call()
    except checkpoint.CheckpointError as error:
        return str(error)
"""
)


@pytest.fixture
def make(warm: Warm, tmp_path: Path) -> Iterator[Callable[..., Trainer]]:
    yield from trainers(warm, tmp_path, BEGIN)


def test_the_next_generation_loads_what_the_last_one_saved(make: Callable[..., Trainer], tmp_path: Path) -> None:
    trainer = make(
        "say(reported(checkpoint.load()))\nfor step in (1, 2, 3):\n    checkpoint.save(state(step), step)\n"
        "checkpoint.wait()\nos.kill(os.getpid(), 9)\n"
    )
    trainer.start()
    remembered = trainer.agent.expect(lambda line: line.get("event") == "remembered" and line["step"] == 3)
    assert remembered["rank"] == remembered["local_rank"] == 0
    assert remembered["length"] > 4000
    trainer.agent.expect("exited")
    trainer.stop()
    trainer.start()
    trainer.agent.expect("exited")
    assert said(tmp_path) == [[None], [[3, 30]]]
    loaded = trainer.agent.expect(lambda line: line.get("word") == "state loaded")
    assert "rank 0 loads step 3 from this member's memory" in loaded["sentence"]


def test_all_local_ranks_load_the_copy_of_the_first(make: Callable[..., Trainer], tmp_path: Path) -> None:
    trainer = make("say(reported(checkpoint.load()))\ncheckpoint.save(state(7, RANK), step=7)\n")
    generation(trainer, 2)
    generation(trainer, 2)
    assert said(tmp_path, 0) == said(tmp_path, 1) == [[None], [[7, 70]]]


def test_sharded_each_rank_loads_its_own_and_only_in_a_world_of_that_size(
    make: Callable[..., Trainer], tmp_path: Path
) -> None:
    trainer = make(
        "say(reported(checkpoint.load(sharded=True)))\n"
        "if WORLD == 2:\n    checkpoint.save(state(7, RANK), step=7, sharded=True)\n"
    )
    for nproc in (2, 2, 1):
        generation(trainer, nproc)
    assert said(tmp_path, 0) == [[None], [[7, 70]], [None]]
    assert said(tmp_path, 1) == [[None], [[7, 71]]]


def test_a_damaged_copy_is_reported_and_all_ranks_load_the_older_one(
    make: Callable[..., Trainer], tmp_path: Path
) -> None:
    trainer = make(
        "say(reported(checkpoint.load()))\n"
        "for step in (1, 2):\n    checkpoint.save(state(step), step)\n    checkpoint.wait()\n"
    )
    generation(trainer, 2)
    damage(trainer, 2)
    generation(trainer, 2)
    assert said(tmp_path, 0) == said(tmp_path, 1) == [[None], [[1, 10]]]
    warning = trainer.agent.expect(lambda line: line.get("word") == "state not saved")
    assert warning["sentence"] == "the copy of step 2 in memory is damaged: its checksum is wrong"


@pytest.mark.parametrize("page", witnesses([b"foreign", arena.FIRST.pack(b"ORCA", 99, 0, 1, 2, 8192)], b"foreign"))
def test_unusable_memory_is_reported_and_a_save_initializes_it(
    make: Callable[..., Trainer], tmp_path: Path, page: bytes
) -> None:
    trainer = make("say(reported(checkpoint.load()))\ncheckpoint.save(state(1), 1)\n")
    generation(trainer)
    fd = os.open(trainer.volume / arena.NAME, os.O_RDWR)
    os.pwrite(fd, page, 0)
    os.close(fd)
    generation(trainer)
    generation(trainer)
    assert said(tmp_path) == [[None], [None], [[1, 10]]]
    assert (
        "initializes it again" in trainer.agent.expect(lambda line: line.get("word") == "state not saved")["sentence"]
    )


def test_storage_has_the_save_and_the_newer_of_file_and_memory_is_loaded(
    make: Callable[..., Trainer], tmp_path: Path
) -> None:
    trainer = make(
        "say(reported(checkpoint.load('last.pt')))\n"
        "checkpoint.save(state(1), 1, path='last.pt')\ncheckpoint.wait()\ndist.barrier()\n"
        "checkpoint.save(state(2), 2)\ncheckpoint.wait()\n"
        "enclosed = torch.load('last.pt')\nsay(enclosed['step'], enclosed['state']['w'][0].item())\n"
    )
    generation(trainer, 2)
    saved = trainer.agent.expect("saved")
    assert saved["path"] == str(tmp_path / "last.pt")
    (trainer.volume / arena.NAME).rename(trainer.volume / "away")
    other = make((tmp_path / "train.py").read_text().removeprefix(BEGIN))
    generation(other, 2)
    (other.volume / arena.NAME).write_bytes((trainer.volume / "away").read_bytes())
    generation(other, 2)
    assert said(tmp_path, 1) == [[None], [1, 10.0], [[1, 10]], [1, 10.0], [[2, 20]], [1, 10.0]]


def test_without_memory_a_save_to_a_path_is_ordinary_and_one_without_a_path_fails(
    make: Callable[..., Trainer], tmp_path: Path
) -> None:
    trainer = make(
        "say(reported(checkpoint.load('last.pt')), tried(lambda: checkpoint.save(state(1), 1)))\n"
        "checkpoint.save(state(4, RANK), 4, path='last.pt')\n",
        memory=0,
    )
    generation(trainer, 2)
    generation(trainer, 2)
    (_, error), (found, _) = said(tmp_path, 1)
    assert found == [4, 40]
    for way in ("--checkpoint-memory 2Gi", "checkpointMemory of the ElasticJob", "outrider.dev/checkpoint-memory"):
        assert way in error


def test_sharded_storage_counts_when_all_its_files_are_there(make: Callable[..., Trainer], tmp_path: Path) -> None:
    trainer = make(
        "say(reported(checkpoint.load('last.pt', sharded=True)))\n"
        "for step in (1, 2, 3):\n"
        "    checkpoint.save(state(step, RANK), step, path='last.pt', sharded=True)\n    dist.barrier()\n",
        memory=0,
    )
    generation(trainer, 2)
    newest = sorted((tmp_path / "last.pt.shards").iterdir())[-1]
    (newest / "1-of-2").unlink()
    generation(trainer, 2)
    assert said(tmp_path, 0) == [[None], [[2, 20]]]
    assert said(tmp_path, 1) == [[None], [[2, 21]]]


WRONG = """
class Unpicklable:
    def __reduce__(self):
        raise RuntimeError("not me")
for call in (
    lambda: checkpoint.save(state(1), 1.5),
    lambda: checkpoint.save(state(1), -1),
    lambda: checkpoint.save(state(1), 1, path=7),
    lambda: checkpoint.save(state(1), 1, path="folder/"),
    lambda: checkpoint.save({"x": Unpicklable()}, 1),
    lambda: checkpoint.save({"x": torch.zeros(3 << 20)}, 1),
    lambda: checkpoint.save(state(1), 1) or checkpoint.save(state(1), 1, sharded=True),
    lambda: checkpoint.wait() or checkpoint.load(sharded=True),
):
    say(tried(call))
"""


def test_misuse_raises_an_error_with_the_valid_values(make: Callable[..., Trainer], tmp_path: Path) -> None:
    generation(make(WRONG))
    errors = [line[0] for line in said(tmp_path)]
    assert errors == [
        "step: Invalid value: 1.5: must be an integer",
        "step: Invalid value: -1: must be from 0 to 4611686018427387903",
        "path: Invalid value: 7: must be a file name (str or os.PathLike)",
        "path: Invalid value: 'folder/': must name a file, not a folder",
        "the state cannot be pickled: RuntimeError: not me",
        "the state has 13 MiB, but a slot of the checkpoint memory has 4 MiB; with 2 slots checkpointMemory "
        "(--checkpoint-memory) must be at least 25 MiB",
        "sharded: Forbidden: a script saves either sharded states or states equal on all ranks, not both",
        "sharded: Invalid value: True: the state in memory was saved with sharded=False",
    ]


@pytest.mark.parametrize(
    ("there", "sentence"),
    witnesses(
        [
            (b"", "foreign.pt cannot be read: "),
            (b"garbage", "foreign.pt cannot be read: "),
            ({"model": 1}, "foreign.pt was not written by checkpoint.save()"),
            ({"outrider_checkpoint": 2}, "foreign.pt has version 2; this release reads version 1"),
            ({"outrider_checkpoint": 1, "step": 3, "state": {}}, "it lacks generation, counted, positions"),
        ],
        ({"outrider_checkpoint": 2}, "foreign.pt has version 2; this release reads version 1"),
    ),
)
def test_a_damaged_or_foreign_file_is_an_error_on_all_ranks_and_no_rank_starts_at_zero(
    make: Callable[..., Trainer], tmp_path: Path, there: bytes | dict[str, Any], sentence: str
) -> None:
    begin = ""
    if isinstance(there, bytes):
        (tmp_path / "foreign.pt").write_bytes(there)
    else:
        begin = f"RANK or torch.save({there}, 'foreign.pt')\ndist.barrier()\n"
    generation(make(f"{begin}say(tried(lambda: checkpoint.load('foreign.pt')))\n"), 2)
    for rank in range(2):
        [[error]] = said(tmp_path, rank)
        assert sentence in error


def test_a_save_with_a_smaller_step_is_reported_and_skipped(make: Callable[..., Trainer], tmp_path: Path) -> None:
    """Otherwise one rank would load the first of two states with the same version, and another the second."""
    trainer = make(
        "say(reported(checkpoint.load('last.pt')))\n"
        "if os.environ['OUTRIDER_GENERATION'] == '1.1':\n"
        "    checkpoint.save(state(7), 7)\n    checkpoint.save(state(8), 7, path='last.pt')\n"
        "    checkpoint.save(state(5), 5, path='last.pt')\n    say(reported(checkpoint.load('last.pt')))\n"
        "    checkpoint.wait()\n    dist.barrier()\n    say(torch.load('last.pt')['state']['w'][0].item())\n"
    )
    generation(trainer, 2)
    generation(trainer, 2)
    assert said(tmp_path) == [[None], [[7, 70]], [70.0], [[7, 70]]]
    reported = [line["sentence"] for line in trainer.agent.lines if line.get("word") == "state not saved"]
    assert any("the save of step 5 after one of step 7 is skipped" in sentence for sentence in reported)


def test_ranks_that_request_different_states_get_an_error(make: Callable[..., Trainer], tmp_path: Path) -> None:
    generation(make("say(tried(lambda: checkpoint.load('%d.pt' % RANK)))\n"), 2)
    for rank in range(2):
        [[error]] = said(tmp_path, rank)
        assert re.fullmatch(r"the ranks request different states: rank 0 .*/0.pt, rank 1 .*/1.pt", error)


def test_a_failed_write_to_storage_is_reported_and_training_continues(
    make: Callable[..., Trainer], tmp_path: Path
) -> None:
    trainer = make("checkpoint.save(state(1), 1, path='/dev/full/last.pt')\ncheckpoint.wait()\nsay('continues')\n")
    generation(trainer)
    assert said(tmp_path) == [["continues"]]
    warning = trainer.agent.expect(lambda line: line.get("word") == "state not saved")
    assert "step 1 could not be written to /dev/full/last.pt: NotADirectoryError" in warning["sentence"]


def test_a_full_volume_is_reported_and_the_old_file_stays(
    full_volume: Path, make: Callable[..., Trainer], tmp_path: Path
) -> None:
    trainer = make(
        "checkpoint.save(state(1), 1, path='full/last.pt')\ncheckpoint.wait()\n"
        "checkpoint.save({'w': torch.ones(100_000)}, 2, path='full/last.pt')\ncheckpoint.wait()\n"
        "say(torch.load('full/last.pt')['step'], os.listdir('full'), checkpoint.load('full/last.pt')[1])\n"
    )
    generation(trainer)
    assert said(tmp_path) == [[1, ["last.pt"], 2]]
    warning = trainer.agent.expect(lambda line: line.get("word") == "state not saved")
    assert f"step 2 could not be written to {full_volume / 'last.pt'}: " in warning["sentence"]


def test_saves_that_come_at_once_leave_the_last(make: Callable[..., Trainer], tmp_path: Path) -> None:
    trainer = make(
        "say(reported(checkpoint.load('last.pt')))\n"
        "for step in range(200):\n    checkpoint.save(state(step), step, path='last.pt')\n"
    )
    generation(trainer)
    generation(trainer)
    assert said(tmp_path) == [[None], [[199, 1990]]]


def test_what_is_saved_to_a_path_is_there_however_many_saves_to_memory_follow(
    make: Callable[..., Trainer], tmp_path: Path
) -> None:
    trainer = make(
        "big = {'w': torch.ones(700_000)}\n"
        "checkpoint.save(big, 1, path='best.pt')\n"
        "for step in range(2, 60):\n    checkpoint.save(big, step, path='last.pt')\n    checkpoint.save(big, step)\n"
        "checkpoint.wait()\n"
        "say(torch.load('last.pt')['step'], checkpoint.load()[1], os.path.exists('best.pt'))\n"
    )
    generation(trainer)
    [[on_storage, in_memory, best]] = said(tmp_path)
    warnings = [line["sentence"] for line in trainer.agent.lines if line.get("word") == "state not saved"]
    assert in_memory == 59 or any("step 59 is not saved" in each for each in warnings)
    assert on_storage == 59 or any("step 59 was not written to" in each for each in warnings)
    assert best or any("step 1 was not written to" in each for each in warnings)


def test_during_a_transfer_to_a_partner_further_saves_go_directly_to_storage(
    make: Callable[..., Trainer], tmp_path: Path
) -> None:
    trainer = make(
        "for step in (1, 2):\n    checkpoint.save(state(step), step, sharded=True)\n    checkpoint.wait()\n"
        "say('saved')\n"
        "while not os.path.exists('given'):\n    pass\n"
        "checkpoint.save(state(3), 3, sharded=True)\n"
        "checkpoint.save(state(4), 4, sharded=True)\n"
        "checkpoint.save(state(5), 5, path='all', sharded=True)\n"
        "say(reported(checkpoint.load('all', sharded=True)))\n"
    )
    trainer.start()
    assert trainer.agent.expect(lambda line: line.get("event") == "remembered" and line["step"] == 2)
    with opened(trainer.volume / arena.NAME) as memory:
        memory.keep(1)
        newest = max(place.head for place in memory.places(memory.division()) if place.head is not None)
        arena.give(memory.fd, newest, 60.0)
    (tmp_path / "given").touch()
    assert trainer.agent.expect("exited")["code"] == 0, trainer.read()
    assert said(tmp_path) == [["saved"], [[5, 50]]]
    [warning] = [line["sentence"] for line in trainer.agent.lines if line.get("word") == "state not saved"]
    assert "faster than another member receives" in warning
    assert [copy.step for copy in copies(trainer.volume / arena.NAME)] == [1, 2]


def test_a_copy_that_not_every_rank_has_is_not_loaded_and_does_not_stay(
    make: Callable[..., Trainer], tmp_path: Path
) -> None:
    trainer = make(
        "say(reported(checkpoint.load(sharded=True)))\n"
        "last = 2 if RANK else 3\n"
        "for step in range(int(os.environ['TORCHELASTIC_RESTART_COUNT']) * 10 + 1, last + 1):\n"
        "    checkpoint.save(state(step, RANK), step, sharded=True)\n    checkpoint.wait()\n"
    )
    for count in range(3):
        trainer.start(2, find_port(), TORCHELASTIC_RESTART_COUNT=str(count))
        for _ in range(2):
            assert trainer.agent.expect("exited")["code"] == 0, trainer.read()
        trainer.stop()
    assert said(tmp_path, 0) == [[None], [[2, 20]], [[2, 20]]]
    assert said(tmp_path, 1) == [[None], [[2, 21]], [[2, 21]]]
    fd = os.open(trainer.volume / arena.NAME, os.O_RDONLY)
    divided = arena.division(fd)
    assert divided is not None
    assert [head.step for _, head in arena.copies(fd, divided, arena.own(arena.SHARDED, 0))] == [2]
    os.close(fd)
