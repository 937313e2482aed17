"""torch.save and torch.load of a marked path, in real ranks with real torch: the script knows nothing of it."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from sidecar.shell.arena import copies
from tests.hooks.agent import Trainer
from tests.hooks.fixtures import free_port
from tests.hooks.test_checkpoint import damage, said, small_volume
from training_hooks import arena

pytestmark = pytest.mark.slow

MEMORY = 8 << 20
BEGIN = """
import json, os, pathlib, pickle, shutil, sys, torch
import torch.distributed as dist
torch.set_num_threads(1)
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
if WORLD > 1 and not os.environ.get("ALONE"):
    dist.init_process_group("gloo")

def state(step, size=1000):
    shared = torch.full((size,), float(step))
    return {"w": shared, "view": shared[10:20], "step": step, "none": None}

def say(*words):
    with open("said-%d" % RANK, "a") as file:
        file.write(json.dumps(words) + "\\n")

def told(found):
    same = set(found["w"].tolist())
    assert same == {float(found["step"])} and found["view"].data_ptr() == found["w"].data_ptr() + 40, found
    return found["step"]

def loaded(path="last.pt"):
    return told(torch.load(path)) if os.path.exists(path) else None

def mine():
    return next(module for name, module in sys.modules.items() if name.endswith(".marked")).here()
"""


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Trainer]]:
    made: list[Trainer] = []

    def trainer(text: str, memory: int = MEMORY, path: str = "last.pt", **options: Any) -> Trainer:
        (tmp_path / "train.py").write_text(BEGIN + text)
        options |= {"OUTRIDER_CHECKPOINT_MEMORY": str(memory), "OUTRIDER_CHECKPOINT_PATH": path}
        made.append(Trainer(tmp_path, "train.py", **options))
        made[-1].announced()
        return made[-1]

    yield trainer
    for each in made:
        each.close()


def newest(trainer: Trainer) -> dict[str, str]:
    """What a master would say that the next generation begins from."""
    found = [copy for copy in copies(trainer.volume / arena.NAME) if copy.marked]
    if not found:
        return {}
    best = max(found, key=lambda copy: (copy.generation, copy.step))
    return {"OUTRIDER_CHECKPOINT_FROM": f"{best.step}:{best.generation}"}


def generation(trainer: Trainer, nproc: int = 1, code: int = 0, **env: str) -> None:
    """One generation, from its start to the end of its ranks."""
    trainer.start(nproc, free_port(), **newest(trainer), **env)
    for _ in range(nproc):
        assert trainer.agent.expect("exited")["code"] == code, trainer.read()
    trainer.stop()


def warned(trainer: Trainer) -> list[str]:
    return [line["sentence"] for line in trainer.agent.lines if line.get("word") == "state not saved"]


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
    trainer.start(1, free_port(), **newest(trainer))
    loaded = trainer.agent.expect(lambda line: line.get("word") == "state loaded")
    assert f"rank 0 loads save 3 (step 0) of {tmp_path / 'last.pt'} from this member's memory" in loaded["sentence"]
    trainer.agent.expect("exited")
    assert said(tmp_path) == [[None], [3]]


def test_on_storage_lies_what_torch_would_have_written(make: Callable[..., Trainer], tmp_path: Path) -> None:
    """The first one is there at once: scripts look whether there is one."""
    generation(
        trainer := make(
            "torch.manual_seed(0)\nnet = torch.nn.Linear(3, 4)\nplain = torch.save\n"
            "torch.save(net.state_dict(), 'last.pt')\nsay(os.path.exists('last.pt'))\n"
            "torch.save({'net': net, 'state': net.state_dict(), 'a': [1, 'x']}, pathlib.Path('last.pt'))\n"
            "torch.save({'net': net, 'state': net.state_dict(), 'a': [1, 'x']}, 'plain.pt')\n"
        )
    )
    assert said(tmp_path) == [[True]], warned(trainer)
    with zipfile.ZipFile(tmp_path / "last.pt") as ours, zipfile.ZipFile(tmp_path / "plain.pt") as plain:
        assert ours.testzip() is None
        rows = [
            {
                entry.filename.partition("/")[2]: (entry.CRC, entry.file_size, entry.compress_type)
                for entry in each.infolist()
            }
            for each in (ours, plain)
        ]
    identities = [row.pop(".data/serialization_id") for row in rows]
    assert rows[0] == rows[1]
    assert identities[0] != identities[1]
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".outrider-")]


def test_behind_a_barrier_every_rank_reads_what_was_saved(make: Callable[..., Trainer], tmp_path: Path) -> None:
    trainer = make(
        "for step in range(30):\n    if RANK == 0:\n        torch.save(state(step), 'last.pt')\n"
        "    dist.barrier()\n    say(loaded())\n    dist.barrier()\n"
    )
    generation(trainer, 2)
    assert said(tmp_path, 0) == said(tmp_path, 1) == [[step] for step in range(30)], warned(trainer)


def test_ranks_on_another_member_wait_for_storage(make: Callable[..., Trainer], tmp_path: Path) -> None:
    """Whose memory has not got it: here it has no memory at all to be given it in."""
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
    say(told_by_link())

def told_by_link():
    return torch.load("other.pt", weights_only=False)["w"].tolist()
"""


def test_whatever_torch_load_is_asked_for_it_gives_the_same_as_from_a_file(
    make: Callable[..., Trainer], tmp_path: Path
) -> None:
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


def test_a_file_that_somebody_else_has_put_there_is_loaded_and_told(
    make: Callable[..., Trainer], tmp_path: Path
) -> None:
    trainer = make(
        "say(loaded())\nfor step in () if os.environ.get('ONLY') else (1, 2):\n    torch.save(state(step), 'last.pt')\n"
    )
    generation(trainer)
    torch.save(other(77), tmp_path / "mine.pt")
    os.replace(tmp_path / "mine.pt", tmp_path / "last.pt")
    generation(trainer, ONLY="1")
    generation(trainer)
    generation(trainer)
    assert said(tmp_path) == [[None], [77], [77], [2]], warned(trainer)
    told = [line["sentence"] for line in trainer.agent.lines if line.get("word") == "state loaded"]
    assert f"{tmp_path / 'last.pt'} is somebody else's, and is loaded" in told


def other(step: int) -> dict[str, Any]:
    shared = torch.full((1000,), float(step))
    return {"w": shared, "view": shared[10:20], "step": step}


def test_a_file_that_is_put_there_while_ours_is_written_stays(make: Callable[..., Trainer], tmp_path: Path) -> None:
    torch.save(other(77), tmp_path / "mine.pt")
    trainer = make(
        "say(loaded())\nif not os.environ.get('ONLY'):\n    torch.save(state(1), 'last.pt')\n"
        "    mine().settle()\n    real = mine()._write_file\n"
        "    def write(*args):\n        os.replace('mine.pt', 'last.pt')\n        return real(*args)\n"
        "    mine()._write_file = write\n    torch.save(state(2), 'last.pt')\n    mine().settle()\n    say(loaded())\n"
    )
    generation(trainer)
    generation(trainer, ONLY="1")
    assert said(tmp_path) == [[None], [77], [77]]
    assert f"somebody else has put another file at {tmp_path / 'last.pt'}: it stays, and counts" in warned(trainer)


def test_storage_that_is_newer_than_what_all_have_in_memory_is_loaded(
    make: Callable[..., Trainer], tmp_path: Path
) -> None:
    trainer = make("say(loaded())\nfor step in (1, 2):\n    torch.save(state(step), 'last.pt')\n    mine().settle()\n")
    generation(trainer)
    trainer.start(1, free_port(), OUTRIDER_CHECKPOINT_FROM="1:1.1")
    trainer.agent.expect("exited")
    assert said(tmp_path) == [[None], [2]]
    told = trainer.agent.expect(lambda line: line.get("word") == "state loaded")["sentence"]
    assert "is newer than what all members have in memory" in told


def test_no_file_is_no_checkpoint_whatever_is_in_memory(make: Callable[..., Trainer], tmp_path: Path) -> None:
    trainer = make("say(loaded())\nfor step in (1, 2):\n    torch.save(state(step), 'last.pt')\n")
    generation(trainer)
    (tmp_path / "last.pt").unlink()
    generation(trainer)
    assert said(tmp_path) == [[None], [None]]


def test_damaged_memory_is_not_loaded_and_storage_only_where_it_has_that_very_save(
    make: Callable[..., Trainer], tmp_path: Path
) -> None:
    trainer = make(
        "try:\n    say(loaded())\nexcept RuntimeError as error:\n    say(str(error))\n    sys.exit(3)\n"
        "for step in (1, 2):\n    torch.save(state(step), 'last.pt')\n    mine().settle()\n"
    )
    generation(trainer)
    begun = newest(trainer)
    damage(trainer, 2)
    trainer.start(1, free_port(), **begun)
    assert trainer.agent.expect("exited")["code"] == 0
    trainer.stop()
    begun = newest(trainer)
    damage(trainer, int(begun["OUTRIDER_CHECKPOINT_FROM"].partition(":")[0]))
    torch.save(other(0), tmp_path / "older.pt")
    from training_hooks import versions

    os.replace(tmp_path / "older.pt", tmp_path / "last.pt")
    versions.write(str(tmp_path / "last.pt"), str(tmp_path / "last.pt"), (1, 1))
    trainer.start(1, free_port(), **begun)
    assert trainer.agent.expect("exited")["code"] == 3
    (first, second, third) = said(tmp_path)
    assert (first, second) == ([None], [2])
    assert "from which all ranks begin, is not whole in this member's memory" in third[0]


def test_what_is_too_big_is_saved_as_ever_and_told_once(make: Callable[..., Trainer], tmp_path: Path) -> None:
    trainer = make(
        "say(loaded())\nfor step, size in enumerate((10_000, 10_000, 3_000_000, 3_000_000)):\n"
        "    torch.save(state(step, size), 'last.pt')\n"
        "    say(torch.load('last.pt')['step'])\n"
    )
    generation(trainer)
    generation(trainer)
    assert said(tmp_path) == [[None], [0], [1], [2], [3], [3], [0], [1], [2], [3]], warned(trainer)
    assert len([line for line in warned(trainer) if "checkpointMemory has to be 23 MiB at the least" in line]) == 2


def test_without_a_process_group_saves_are_ordinary_ones(make: Callable[..., Trainer], tmp_path: Path) -> None:
    trainer = make(
        "torch.save(state(RANK), 'last.pt') if RANK == 0 else None\nsay(os.path.exists('last.pt'))\n", ALONE="1"
    )
    generation(trainer, 2)
    assert said(tmp_path) == [[True]]
    assert any("there is no process group of all 2 ranks" in line for line in warned(trainer))
    assert not newest(trainer)


def test_another_rank_saves_as_ever(make: Callable[..., Trainer], tmp_path: Path) -> None:
    trainer = make("if RANK == 1:\n    for step in (5, 6):\n        torch.save(state(step), 'last.pt')\nsay(1)\n")
    generation(trainer, 2)
    assert torch.load(tmp_path / "last.pt")["step"] == 6
    assert len([line for line in warned(trainer) if "rank 1 saves to" in line]) == 1


def test_who_copies_or_renames_the_file_gets_what_was_saved(make: Callable[..., Trainer], tmp_path: Path) -> None:
    trainer = make(
        "for step in range(3):\n    torch.save(state(step, 400_000), 'last.pt')\n"
        "    shutil.copyfile('last.pt', 'best.pt')\n"
        "    say(loaded('best.pt'))\ntorch.save(state(7, 400_000), 'last.pt')\nos.replace('last.pt', 'final.pt')\n"
        "say(loaded('final.pt'), loaded())\ntorch.save(state(8), 'last.pt')\nsay(loaded())\n"
    )
    generation(trainer)
    assert said(tmp_path) == [[0], [1], [2], [7, None], [8]]


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


def test_the_explicit_functions_are_refused_where_a_path_is_marked(
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
    assert all("writes to last.pt, the path that this job has marked" in line[0] for line in lines)


@pytest.mark.parametrize("path", ["last.pt", "sub/../last.pt", "{here}/last.pt", "link.pt"])
def test_the_path_may_be_spelled_in_any_way(make: Callable[..., Trainer], tmp_path: Path, path: str) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "link.pt").symlink_to("last.pt")
    trainer = make(
        "say(loaded())\nos.chdir('sub')\nfor step in (1, 2):\n    torch.save(state(step), '../last.pt')\n"
        "os.chdir('..')\n",
        path=path.format(here=tmp_path),
    )
    generation(trainer)
    assert newest(trainer)
    generation(trainer)
    assert said(tmp_path) == [[None], [2]]


def test_saves_that_come_faster_than_others_are_given_them_do_not_wait_and_none_is_lost(
    make: Callable[..., Trainer], tmp_path: Path
) -> None:
    """Nobody keeps anything here, as where there is no master."""
    trainer = make(
        "say(loaded())\nfor step in range(40):\n    torch.save(state(step), 'last.pt')\n    assert loaded() == step\n"
    )
    generation(trainer)
    generation(trainer)
    assert said(tmp_path) == [[None], [39]]
    assert torch.load(tmp_path / "last.pt")["step"] == 39


def test_who_ends_by_os_exit_has_the_last_save_on_storage(make: Callable[..., Trainer], tmp_path: Path) -> None:
    generation(
        make("for step in (1, 2, 3):\n    torch.save(state(step, 300_000), 'last.pt')\nos._exit(0)\n"),
    )
    assert torch.load(tmp_path / "last.pt")["step"] == 3


@pytest.mark.parametrize("size", [0, 1000])
def test_a_file_that_is_cut_short_gives_way_to_what_is_in_memory(
    make: Callable[..., Trainer], tmp_path: Path, size: int
) -> None:
    trainer = make("say(loaded())\nfor step in (1, 2):\n    torch.save(state(step), 'last.pt')\n")
    generation(trainer)
    os.truncate(tmp_path / "last.pt", size)
    generation(trainer)
    assert said(tmp_path) == [[None], [2]]
    told = f"{tmp_path / 'last.pt'} is cut short, and was not by us: save 2, which is in memory, is loaded"
    assert told in warned(trainer)
    assert torch.load(tmp_path / "last.pt")["step"] == 2


def test_a_script_that_never_saves_to_the_path_itself_is_told(make: Callable[..., Trainer], tmp_path: Path) -> None:
    trainer = make(
        "say(loaded())\nfor step in range(12):\n    torch.save(state(step), 'last.pt.tmp')\n"
        "    os.replace('last.pt.tmp', 'last.pt')\n"
    )
    generation(trainer)
    generation(trainer)
    assert said(tmp_path) == [[None], [11]]
    [first, second] = warned(trainer)
    assert first == second
    assert f"and none by torch.save to {tmp_path / 'last.pt'}, the path that this job has marked" in first


def test_a_state_in_torchs_old_format_is_saved_as_ever(make: Callable[..., Trainer], tmp_path: Path) -> None:
    trainer = make(
        "for step in (1, 2, 3):\n    torch.save(state(step), 'last.pt', _use_new_zipfile_serialization=False)\n"
        "    say(loaded())\n"
    )
    generation(trainer)
    assert said(tmp_path) == [[1], [2], [3]]
    assert torch.load(tmp_path / "last.pt")["step"] == 3
    assert ["torch's old format" in line for line in warned(trainer)] == [True]


def test_who_copies_renames_or_removes_the_folder_finds_what_was_saved_and_nobody_at_work(
    make: Callable[..., Trainer], tmp_path: Path
) -> None:
    trainer = make(
        "def put(step):\n    os.makedirs('sub', exist_ok=True)\n    torch.save(state(step, 300_000), 'sub/last.pt')\n"
        "for step in range(3):\n    put(step)\nshutil.copytree('sub', 'copied')\nput(3)\nos.rename('sub', 'renamed')\n"
        "put(4)\nput(5)\nshutil.rmtree('sub')\n"
        "say(loaded('copied/last.pt'), loaded('renamed/last.pt'), os.path.exists('sub'))\n",
        path="sub/last.pt",
    )
    generation(trainer)
    assert said(tmp_path) == [[2, 3, False]], warned(trainer)
    for name in ("copied", "renamed"):
        assert sorted(os.listdir(tmp_path / name)) == [".last.pt.version.json", "last.pt"]


def test_the_file_of_an_earlier_job_with_later_generations_is_written_over_at_once(
    make: Callable[..., Trainer], tmp_path: Path
) -> None:
    """Else its generation would go before all of this job's, and what is in memory alone count for nothing."""
    from training_hooks import versions

    path = tmp_path / "last.pt"
    torch.save(other(40), path)
    versions.write(str(path), str(path), (9 << 32, 40))
    trainer = make("say(loaded())\ntorch.save(state(41), 'last.pt')\nos.kill(os.getpid(), 9)\n")
    trainer.start()
    trainer.agent.expect("exited")
    assert torch.load(path)["step"] == 41


@pytest.fixture
def full_volume(tmp_path: Path) -> Iterator[Path]:
    yield from small_volume(tmp_path)


def test_a_full_volume_is_told_and_training_goes_on_with_what_is_in_memory(
    full_volume: Path, make: Callable[..., Trainer], tmp_path: Path
) -> None:
    trainer = make(
        "say(loaded('full/last.pt'))\ntorch.save(state(1), 'full/last.pt')\n"
        "torch.save(state(2, 100_000), 'full/last.pt')\nmine().settle()\nsay(loaded('full/last.pt'))\n",
        path="full/last.pt",
    )
    trainer.start(1, free_port())
    assert trainer.agent.expect("exited")["code"] == 0, trainer.read()
    trainer.stop()
    assert torch.load(full_volume / "last.pt")["step"] == 1
    trainer.start(1, free_port(), **newest(trainer))
    trainer.agent.expect("exited")
    assert said(tmp_path)[:3] == [[None], [2], [2]]
    assert any("save 2 could not be written to" in line for line in warned(trainer))
