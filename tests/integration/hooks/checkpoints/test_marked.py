"""torch.save and torch.load of the checkpoint path, in real ranks with real torch and an unchanged script."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from outrider.runtime.ports import find_port
from tests.integration.hooks.agent import Trainer
from tests.integration.hooks.memories import MARKED, damage, generation, newest, said, step_in, trainers, warned, write
from tests.tiers import witnesses
from tests.warm import Warm
from training_hooks.checkpoints import version_file

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("torch")]  # they share a warm Python


@pytest.fixture
def make(warm: Warm, tmp_path: Path) -> Iterator[Callable[..., Trainer]]:
    yield from trainers(warm, tmp_path, MARKED, OUTRIDER_CHECKPOINT_PATH="last.pt")


def test_the_next_generation_begins_from_the_newest_save(make: Callable[..., Trainer], tmp_path: Path) -> None:
    trainer = make(
        "say(loaded())\nfor step in (1, 2, 3):\n    torch.save(state(step), 'last.pt')\n"
        "mine().sealing.wait()\nos.kill(os.getpid(), 9)\n"
    )
    trainer.start()
    remembered = trainer.agent.expect(lambda line: line.get("event") == "remembered" and line["step"] == 3)
    assert remembered["marked"] is True
    trainer.agent.expect("exited")
    trainer.stop()
    trainer.start(1, find_port(), **newest(trainer))
    loaded = trainer.agent.expect(lambda line: line.get("word") == "state loaded")
    assert f"rank 0 loads save 3 (step 0) of {tmp_path / 'last.pt'} from this member's memory" in loaded["sentence"]
    trainer.agent.expect("exited")
    assert said(tmp_path) == [[None], [3]]


def test_after_a_barrier_every_rank_reads_the_save(make: Callable[..., Trainer], tmp_path: Path) -> None:
    trainer = make(
        "for step in range(30):\n    if RANK == 0:\n        torch.save(state(step), 'last.pt')\n"
        "    dist.barrier()\n    say(loaded())\n    dist.barrier()\n"
    )
    generation(trainer, 2)
    assert said(tmp_path, 0) == said(tmp_path, 1) == [[step] for step in range(30)], warned(trainer)


def test_ranks_on_another_member_wait_for_storage(make: Callable[..., Trainer], tmp_path: Path) -> None:
    """Their memory does not have the save: here they have no memory that could receive it."""
    trainer = make(
        "if RANK == 1:\n    mine().copies = lambda: []\n"
        "for step in range(10):\n    if RANK == 0:\n        torch.save(state(step), 'last.pt')\n"
        "    dist.barrier()\n    say(loaded())\n    dist.barrier()\n"
    )
    generation(trainer, 2)
    assert said(tmp_path, 0) == said(tmp_path, 1) == [[step] for step in range(10)], warned(trainer)


OPTIONS = """
class Own:
    def __eq__(self, other):
        return type(other).__name__ == "Own"
class Odd(pickle.Unpickler):
    pass
odd = type(sys)("odd")
odd.Unpickler, odd.load, odd.__name__ = Odd, pickle.load, "odd"
os.makedirs("sub", exist_ok=True)
if not os.path.exists("other.pt"):
    os.symlink("last.pt", "other.pt")

def opened(path):
    with open(path, "rb") as file:
        return torch.load(file)

def at(place):
    return {"w": torch.arange(5.0), "own": Own() if place == "own" else 3}

ways = [
    lambda path: torch.load(path),
    lambda path: torch.load(path, weights_only=False),
    lambda path: torch.load(path, "cpu", weights_only=True),
    lambda path: torch.load(path, map_location=torch.device("cpu")),
    lambda path: torch.load(path, map_location={"cpu": "meta"}),
    lambda path: torch.load(path, map_location=lambda storage, location: storage if location == "cpu" else None),
    lambda path: torch.load(path, map_location="meta"),
    lambda path: torch.load(path, map_location="nowhere"),
    lambda path: torch.load(path, mmap=True, weights_only=False),
    lambda path: torch.load(path, pickle_module=odd, weights_only=False),
    lambda path: torch.load(path, pickle_module=odd, weights_only=True),
    lambda path: torch.load(path, encoding="ascii"),
    lambda path: torch.load(pathlib.Path(path)),
    lambda path: torch.load(os.path.join("sub", "..", path)),
    lambda path: torch.load(os.path.abspath(path)),
    opened,
]

def tried(way, path):
    try:
        found = way(path)
        own = found["own"]
        values = found["w"].tolist() if found["w"].device.type == "cpu" else 0
        return [str(found["w"].device), values, own if own == 3 else "own"]
    except Exception as error:
        return [type(error).__name__, str(error).replace(path, "X")[:300]]

def compare():
    say([tried(way, "last.pt") for way in ways], [tried(way, "plain.pt") for way in ways])
    say(reported_by_link())

def reported_by_link():
    return torch.load("other.pt", weights_only=False)["w"].tolist()
"""


def test_torch_load_returns_the_same_as_from_a_file(make: Callable[..., Trainer], tmp_path: Path) -> None:
    trainer = make(
        OPTIONS + "torch.save(at(sys.argv[0]), 'last.pt')\n"
        "what = at('own') if os.environ.get('OWN') else at('')\n"
        "torch.save(what, 'last.pt')\ntorch.save(what, 'plain.pt')\ncompare()\nmine().settle()\ncompare()\n"
    )
    for options in ({}, {"OWN": "1"}):
        generation(trainer, 1, **options)
    lines = said(tmp_path)
    for ours, plain in lines[::2]:
        assert ours == plain
    assert {len(line) for line in lines[1::2]} == {1}
    kinds = {row[0] for line in lines[::2] for row in line[0]}
    assert {"UnpicklingError", "cpu", "meta", "RuntimeError"} <= kinds, kinds


def test_damaged_memory_is_not_loaded_and_storage_only_if_it_has_exactly_that_save(
    make: Callable[..., Trainer], tmp_path: Path
) -> None:
    trainer = make(
        "try:\n    say(loaded())\nexcept RuntimeError as error:\n    say(str(error))\n    sys.exit(3)\n"
        "for step in (1, 2):\n    torch.save(state(step), 'last.pt')\n    mine().settle()\n"
    )
    generation(trainer)
    begun = newest(trainer)
    damage(trainer, 2)
    trainer.start(1, find_port(), **begun)
    assert trainer.agent.expect("exited")["code"] == 0
    trainer.stop()
    begun = newest(trainer)
    damage(trainer, int(begun["OUTRIDER_CHECKPOINT_FROM"].partition(":")[0]))
    write(0, tmp_path / "older.pt")

    os.replace(tmp_path / "older.pt", tmp_path / "last.pt")
    version_file.write(str(tmp_path / "last.pt"), str(tmp_path / "last.pt"), (1, 1))
    trainer.start(1, find_port(), **begun)
    assert trainer.agent.expect("exited")["code"] == 3
    (first, second, third) = said(tmp_path)
    assert (first, second) == ([None], [2])
    assert "from which all ranks resume, is not complete in this member's memory" in third[0]


def test_a_state_that_is_too_big_is_an_ordinary_save_and_reported_once(
    make: Callable[..., Trainer], tmp_path: Path
) -> None:
    trainer = make(
        "say(loaded())\nfor step, size in enumerate((10_000, 10_000, 3_000_000, 3_000_000)):\n"
        "    torch.save(state(step, size), 'last.pt')\n"
        "    say(torch.load('last.pt')['step'])\n"
    )
    generation(trainer)
    generation(trainer)
    assert said(tmp_path) == [[None], [0], [1], [2], [3], [3], [0], [1], [2], [3]], warned(trainer)
    assert len([line for line in warned(trainer) if "must be at least 23 MiB" in line]) == 2


def test_without_a_process_group_saves_are_ordinary_ones(make: Callable[..., Trainer], tmp_path: Path) -> None:
    trainer = make(
        "torch.save(state(RANK), 'last.pt') if RANK == 0 else None\nsay(os.path.exists('last.pt'))\n", ALONE="1"
    )
    generation(trainer, 2)
    assert said(tmp_path) == [[True]]
    assert any("there is no process group of all 2 ranks" in line for line in warned(trainer))
    assert not newest(trainer)


def test_another_ranks_save_is_an_ordinary_one(make: Callable[..., Trainer], tmp_path: Path) -> None:
    trainer = make("if RANK == 1:\n    for step in (5, 6):\n        torch.save(state(step), 'last.pt')\nsay(1)\n")
    generation(trainer, 2)
    assert step_in(tmp_path / "last.pt") == 6
    assert len([line for line in warned(trainer) if "rank 1 saves to" in line]) == 1


def test_a_state_that_cannot_be_pickled_raises_what_torch_raises(make: Callable[..., Trainer], tmp_path: Path) -> None:
    trainer = make(
        "class Unpicklable:\n    def __reduce__(self):\n        raise KeyError('not me')\n"
        "torch.save(state(1), 'last.pt')\n"
        "for path in ('last.pt', 'plain.pt'):\n    try:\n        torch.save({'x': Unpicklable()}, path)\n"
        "    except Exception as error:\n        say(type(error).__name__, str(error))\nsay(loaded())\n"
    )
    generation(trainer)
    ours, plain, after = said(tmp_path)
    assert ours == plain == ["KeyError", "'not me'"]
    assert after == [1]


def test_the_explicit_functions_are_refused_with_a_checkpoint_path(
    make: Callable[..., Trainer], tmp_path: Path
) -> None:
    generation(
        make(
            "from training_hooks import checkpoint\n"
            "for call in (checkpoint.load, lambda: checkpoint.save(state(1), 1)):\n    try:\n        call()\n"
            "    except checkpoint.CheckpointError as error:\n        say(str(error))\n"
        )
    )
    lines = said(tmp_path)
    assert len(lines) == 2
    assert all("is used for last.pt, the checkpoint path of this job" in line[0] for line in lines)


@pytest.mark.parametrize("path", witnesses(["last.pt", "sub/../last.pt", "{here}/last.pt", "link.pt"], "link.pt"))
def test_the_path_may_be_spelled_in_any_way(make: Callable[..., Trainer], tmp_path: Path, path: str) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "link.pt").symlink_to("last.pt")
    trainer = make(
        "say(loaded())\nos.chdir('sub')\nfor step in (1, 2):\n    torch.save(state(step), '../last.pt')\n"
        "os.chdir('..')\n",
        OUTRIDER_CHECKPOINT_PATH=path.format(here=tmp_path),
    )
    generation(trainer)
    assert newest(trainer)
    generation(trainer)
    assert said(tmp_path) == [[None], [2]]


def test_saves_faster_than_their_replication_do_not_wait_and_none_is_lost(
    make: Callable[..., Trainer], tmp_path: Path
) -> None:
    """No member confirms a replica here, as without a master."""
    trainer = make(
        "say(loaded())\nfor step in range(40):\n    torch.save(state(step), 'last.pt')\n    assert loaded() == step\n"
    )
    generation(trainer)
    generation(trainer)
    assert said(tmp_path) == [[None], [39]]
    assert step_in(tmp_path / "last.pt") == 39
