"""The file at the checkpoint path when other programs read, move, truncate or replace it; file or memory is loaded."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from outrider.runtime.ports import find_port
from tests.integration.hooks.agent import Trainer
from tests.integration.hooks.memories import MARKED, generation, newest, said, step_in, trainers, warned, write
from tests.tiers import witnesses
from tests.warm import Warm
from training_hooks.checkpoints import version_file

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("torch")]  # they share a warm Python


@pytest.fixture
def make(warm: Warm, tmp_path: Path) -> Iterator[Callable[..., Trainer]]:
    yield from trainers(warm, tmp_path, MARKED, OUTRIDER_CHECKPOINT_PATH="last.pt")


def test_storage_has_the_file_that_torch_would_have_written(make: Callable[..., Trainer], tmp_path: Path) -> None:
    """The first file is written at once, because scripts check whether it exists."""
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


def test_a_file_of_another_program_is_loaded_and_reported(make: Callable[..., Trainer], tmp_path: Path) -> None:
    trainer = make(
        "say(loaded())\nfor step in () if os.environ.get('ONLY') else (1, 2):\n    torch.save(state(step), 'last.pt')\n"
    )
    generation(trainer)
    write(77, tmp_path / "mine.pt")
    os.replace(tmp_path / "mine.pt", tmp_path / "last.pt")
    generation(trainer, ONLY="1")
    generation(trainer)
    generation(trainer)
    assert said(tmp_path) == [[None], [77], [77], [2]], warned(trainer)
    reported = [line["sentence"] for line in trainer.agent.lines if line.get("word") == "state loaded"]
    assert f"{tmp_path / 'last.pt'} is loaded from storage: it was written by another program" in reported


def test_a_file_of_another_program_put_there_during_a_save_stays(make: Callable[..., Trainer], tmp_path: Path) -> None:
    write(77, tmp_path / "mine.pt")
    trainer = make(
        "say(loaded())\nif not os.environ.get('ONLY'):\n    torch.save(state(1), 'last.pt')\n"
        "    mine().settle()\n    real = mine()._write_file\n"
        "    def write(*args):\n        os.replace('mine.pt', 'last.pt')\n        return real(*args)\n"
        "    mine()._write_file = write\n    torch.save(state(2), 'last.pt')\n    mine().settle()\n    say(loaded())\n"
    )
    generation(trainer)
    generation(trainer, ONLY="1")
    assert said(tmp_path) == [[None], [77], [77]]
    assert (
        f"another program has replaced {tmp_path / 'last.pt'}: its file stays, and is the one that is loaded"
        in warned(trainer)
    )


def test_a_file_newer_than_all_memories_is_loaded(make: Callable[..., Trainer], tmp_path: Path) -> None:
    trainer = make("say(loaded())\nfor step in (1, 2):\n    torch.save(state(step), 'last.pt')\n    mine().settle()\n")
    generation(trainer)
    trainer.start(1, find_port(), OUTRIDER_CHECKPOINT_FROM="1:1.1")
    trainer.agent.expect("exited")
    assert said(tmp_path) == [[None], [2]]
    reported = trainer.agent.expect(lambda line: line.get("word") == "state loaded")["sentence"]
    assert "is newer than the newest copy that all members have in memory" in reported


def test_without_a_file_there_is_no_checkpoint_whatever_is_in_memory(
    make: Callable[..., Trainer], tmp_path: Path
) -> None:
    trainer = make("say(loaded())\nfor step in (1, 2):\n    torch.save(state(step), 'last.pt')\n")
    generation(trainer)
    (tmp_path / "last.pt").unlink()
    generation(trainer)
    assert said(tmp_path) == [[None], [None]]


def test_copying_or_renaming_the_file_gives_the_last_save(make: Callable[..., Trainer], tmp_path: Path) -> None:
    trainer = make(
        "for step in range(3):\n    torch.save(state(step, 400_000), 'last.pt')\n"
        "    shutil.copyfile('last.pt', 'best.pt')\n"
        "    say(loaded('best.pt'))\ntorch.save(state(7, 400_000), 'last.pt')\nos.replace('last.pt', 'final.pt')\n"
        "say(loaded('final.pt'), loaded())\ntorch.save(state(8), 'last.pt')\nsay(loaded())\n"
    )
    generation(trainer)
    assert said(tmp_path) == [[0], [1], [2], [7, None], [8]]


def test_after_os_exit_the_last_save_is_on_storage(make: Callable[..., Trainer], tmp_path: Path) -> None:
    generation(
        make("for step in (1, 2, 3):\n    torch.save(state(step, 300_000), 'last.pt')\nos._exit(0)\n"),
    )
    assert step_in(tmp_path / "last.pt") == 3


@pytest.mark.parametrize("size", witnesses([0, 1000], 1000))
def test_a_truncated_file_is_replaced_by_the_copy_in_memory(
    make: Callable[..., Trainer], tmp_path: Path, size: int
) -> None:
    trainer = make("say(loaded())\nfor step in (1, 2):\n    torch.save(state(step), 'last.pt')\n")
    generation(trainer)
    os.truncate(tmp_path / "last.pt", size)
    generation(trainer)
    assert said(tmp_path) == [[None], [2]]
    reported = f"{tmp_path / 'last.pt'} is truncated, not by Outrider: save 2 is loaded from memory"
    assert reported in warned(trainer)
    assert step_in(tmp_path / "last.pt") == 2


def test_a_script_that_never_saves_to_the_path_is_reported(make: Callable[..., Trainer], tmp_path: Path) -> None:
    trainer = make(
        "say(loaded())\nfor step in range(12):\n    torch.save(state(step), 'last.pt.tmp')\n"
        "    os.replace('last.pt.tmp', 'last.pt')\n"
    )
    generation(trainer)
    generation(trainer)
    assert said(tmp_path) == [[None], [11]]
    [first, second] = warned(trainer)
    assert first == second
    assert f"and none by torch.save to the checkpoint path {tmp_path / 'last.pt'} (--checkpoint-path" in first


def test_a_state_in_torchs_old_format_is_an_ordinary_save(make: Callable[..., Trainer], tmp_path: Path) -> None:
    trainer = make(
        "for step in (1, 2, 3):\n    torch.save(state(step), 'last.pt', _use_new_zipfile_serialization=False)\n"
        "    say(loaded())\n"
    )
    generation(trainer)
    assert said(tmp_path) == [[1], [2], [3]]
    assert step_in(tmp_path / "last.pt") == 3
    assert ["torch's old format" in line for line in warned(trainer)] == [True]


def test_copying_renaming_or_removing_the_folder_waits_for_the_last_save(
    make: Callable[..., Trainer], tmp_path: Path
) -> None:
    trainer = make(
        "def put(step):\n    os.makedirs('sub', exist_ok=True)\n    torch.save(state(step, 300_000), 'sub/last.pt')\n"
        "for step in range(3):\n    put(step)\nshutil.copytree('sub', 'copied')\nput(3)\nos.rename('sub', 'renamed')\n"
        "put(4)\nput(5)\nshutil.rmtree('sub')\n"
        "say(loaded('copied/last.pt'), loaded('renamed/last.pt'), os.path.exists('sub'))\n",
        OUTRIDER_CHECKPOINT_PATH="sub/last.pt",
    )
    generation(trainer)
    assert said(tmp_path) == [[2, 3, False]], warned(trainer)
    for name in ("copied", "renamed"):
        assert sorted(os.listdir(tmp_path / name)) == [".last.pt.version.json", "last.pt"]


def test_the_file_of_an_earlier_job_with_later_generations_is_overwritten_at_once(
    make: Callable[..., Trainer], tmp_path: Path
) -> None:
    """Otherwise its generation would precede all of this job's, and copies in memory would never be loaded."""

    path = tmp_path / "last.pt"
    write(40, path)
    version_file.write(str(path), str(path), (9 << 32, 40))
    trainer = make("say(loaded())\ntorch.save(state(41), 'last.pt')\nos.kill(os.getpid(), 9)\n")
    trainer.start()
    trainer.agent.expect("exited")
    assert step_in(path) == 41


def test_a_full_volume_is_reported_and_training_continues_with_memory(
    full_volume: Path, make: Callable[..., Trainer], tmp_path: Path
) -> None:
    trainer = make(
        "say(loaded('full/last.pt'))\ntorch.save(state(1), 'full/last.pt')\n"
        "torch.save(state(2, 100_000), 'full/last.pt')\nmine().settle()\nsay(loaded('full/last.pt'))\n",
        OUTRIDER_CHECKPOINT_PATH="full/last.pt",
    )
    trainer.start(1, find_port())
    assert trainer.agent.expect("exited")["code"] == 0, trainer.read()
    trainer.stop()
    assert step_in(full_volume / "last.pt") == 1
    trainer.start(1, find_port(), **newest(trainer))
    trainer.agent.expect("exited")
    assert said(tmp_path)[:3] == [[None], [2], [2]]
    assert any("save 2 could not be written to" in line for line in warned(trainer))
