"""A save of an ended generation does not replace a newer generation's file; other savers are not affected."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.hooks.agent import Trainer
from tests.warm import Warm
from training_hooks.checkpoints.overtaken import Overtaken, Save

pytestmark = pytest.mark.xdist_group("warm")
SCRIPT = """
import torch
class Slow:
    def __reduce__(self):
        open("begun", "w").close()  # of a pipe: both ends meet
        open("end").close()
        return (str, ("slow",))
torch.save({"by": "old", "value": Slow() if __import__("sys").argv[1] == "slow" else 0}, "last.pt")
print("CONTINUED", flush=True)
"""
QUICK = 'import torch\ntorch.save({"by": "other"}, "last.pt")\n'


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    """A folder whose file system has extended attributes."""
    try:
        (tmp_path / "x").touch()
        os.setxattr(tmp_path / "x", "user.outrider.generation", b"1")
    except OSError as error:
        pytest.skip(f"no extended attributes here: {error}")
    (tmp_path / "x").unlink()
    return tmp_path


@pytest.fixture
def make(warm: Warm, marks: Path) -> Iterator[Callable[..., Trainer]]:
    made: list[Trainer] = []

    def make(name: str, script: str, number: int) -> Trainer:
        folder = marks / name
        folder.mkdir()
        (folder / "train.py").write_text(f"import os\nos.chdir({str(marks)!r})\n{script}")
        trainer = Trainer(folder, "train.py", "slow", warm=warm, OUTRIDER_JOB="a/b")
        made.append(trainer)
        trainer.number = number - 1
        trainer.announced()
        trainer.start()
        return trainer

    yield make
    for trainer in made:
        trainer.close()


def ended(trainer: Trainer) -> Trainer:
    assert trainer.agent.expect("exited")["code"] == 0, trainer.read()
    return trainer


def saved_by(folder: Path) -> str:
    import torch

    return str(torch.load(folder / "last.pt", weights_only=False)["by"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("other", "stays"),
    [(3, "other"), (2, "old"), pytest.param(1, "old", marks=pytest.mark.exhaustive)],
)
def test_only_a_newer_generations_file_survives_an_older_save(
    marks: Path, make: Callable[..., Trainer], other: int, stays: str
) -> None:
    ended(make("before", QUICK, 1))
    os.mkfifo(marks / "begun")
    os.mkfifo(marks / "end")
    old = make("old", SCRIPT, 2)
    (marks / "begun").open().close()  # it is inside its save now
    ended(make("other", QUICK, other))
    (marks / "end").open("w").close()
    ended(old)
    assert saved_by(marks) == stays
    assert "CONTINUED" in old.read()
    reported = [line["sentence"] for line in old.agent.lines if line.get("word") == "overtaken"]
    assert len(reported) == (stays == "other")
    assert not list(marks.glob(".outrider-*"))
    finished = [line for line in old.agent.lines if line.get("event") in ("saved", "first")]
    assert len(finished) == (stays == "old")


def put(path: Path, save: Save | None) -> None:
    beside = path.with_name("beside")
    beside.write_bytes(b"1")
    if save is not None:
        save.mark(str(beside))
    beside.replace(path)


def test_an_older_or_foreign_file_refuses_no_save(marks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = marks / "last.pt"
    monkeypatch.setenv("OUTRIDER_JOB", "a/b")
    put(path, Save(str(path), 9))
    Save(str(path), 2).check()  # a job of this name that was deleted and created again
    save = Save(str(path), 2)
    put(path, None)
    save.check()
    monkeypatch.setenv("OUTRIDER_JOB", "a/other")
    put(path, Save(str(path), 9))
    save.check()
    path.unlink()
    save.check()
    monkeypatch.setenv("OUTRIDER_JOB", "a/b")
    put(path, Save(str(path), 3))
    with pytest.raises(Overtaken, match=r"last\.pt is dropped: a newer generation"):
        save.check()
