"""Atomic saves in a real worker process: kill -9 at any moment leaves a file that loads, and nothing beside it."""

from __future__ import annotations

import itertools
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.hooks.agent import PATIENCE, Trainer, wait_until
from tests.integration.hooks.container import Container
from tests.tiers import witnesses
from tests.warm import Warm
from training_hooks.abi import progress_page
from training_hooks.checkpoints import atomic_write

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("warm")]
KILLS = 5
"""Number of kills within a save; others come between two saves."""
SAVING = """
import os, sys, torch
torch.set_num_threads(1)  # else most of its time would go into waiting for a second thread, not into saves
state = {"step": 0, "weights": torch.zeros(400_000)}
while True:
    state["step"] += 1
    state["weights"].fill_(state["step"])
    torch.save(state, "ckpt.pt")
"""


@pytest.fixture
def make(warm: Warm, tmp_path: Path) -> Iterator[Callable[..., Trainer]]:
    made: list[Trainer] = []

    def trainer(text: str, **options: Any) -> Trainer:
        (tmp_path / "train.py").write_text(text)
        made.append(Trainer(tmp_path, "train.py", warm=warm, **options))
        return made[-1]

    yield trainer
    for each in made:
        each.close()


@pytest.mark.parametrize("kills", witnesses([KILLS, 4 * KILLS], KILLS))
def test_a_worker_killed_at_any_moment_of_its_saves_leaves_a_file_that_loads(
    tmp_path: Path, make: Callable[..., Trainer], kills: int
) -> None:
    import torch

    trainer = make(SAVING)
    trainer.announced()
    in_a_save, until = 0, time.monotonic() + PATIENCE
    for kill in itertools.count():
        (pid,) = trainer.start()
        wait_until(lambda: saves_of(trainer, pid) > kill % 5, "a save")  # noqa: B023
        os.kill(pid, signal.SIGKILL)
        trainer.agent.expect("exited")
        reading = progress_page.read(str(trainer.volume / "progress" / "0"), pid)
        in_a_save += reading is not None and reading.phase == progress_page.CHECKPOINT
        trainer.stop()
        state = torch.load(tmp_path / "ckpt.pt", weights_only=True)
        assert bool((state["weights"] == state["step"]).all())
        assert sorted(os.listdir(tmp_path)) == ["ckpt.pt", "output.txt", "train.py"]
        if in_a_save == kills:
            break
        assert time.monotonic() < until, f"only {in_a_save} of {kill + 1} kills came within a save"


def saves_of(trainer: Trainer, pid: int) -> int:
    reading = progress_page.read(str(trainer.volume / "progress" / "0"), pid)
    return reading.saves if reading is not None else 0


def test_folders_left_by_killed_saves_are_removed_by_the_next_save(
    tmp_path: Path, make: Callable[..., Trainer]
) -> None:
    here = atomic_write.place()
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    left = {
        f".outrider-{here}-{gone.pid}-0": False,
        f".outrider-{here}-{os.getpid()}-3": True,
        f".outrider-another-host-7-{gone.pid}-0": True,
        f".outrider-another-host-8-{gone.pid}-0": False,
        ".outrider-notes": True,
    }
    for name in left:
        (tmp_path / name).mkdir()
        (tmp_path / name / "ckpt.pt").write_bytes(b"half")
    abandoned = tmp_path / f".outrider-another-host-8-{gone.pid}-0"
    for path in (abandoned / "ckpt.pt", abandoned):
        os.utime(path, (1e9, 1e9))
    trainer = make("import torch\ntorch.save({}, 'ckpt.pt')\ntorch.save({}, 'ckpt.pt')\n")
    trainer.announced()
    trainer.start()
    assert trainer.agent.expect("exited")["code"] == 0, trainer.read()
    assert {name: (tmp_path / name).exists() for name in left} == left


def test_a_stop_lets_a_save_finish(tmp_path: Path, make: Callable[..., Trainer]) -> None:
    script = """
import os, time, torch
class Slow:
    def __reduce__(self):
        print("SAVING", flush=True)
        while not os.path.exists("go"): time.sleep(0.01)
        return (str, ("slow",))
torch.save({"value": Slow(), "rest": torch.ones(9)}, "ckpt.pt")
while True:
    __import__("signal").pause()
"""
    trainer = make(script)
    trainer.announced()
    trainer.start()
    wait_until(lambda: "SAVING" in trainer.read(), "the save")
    trainer.agent.say(do="stop", generation=[1, 1], grace=60, save_grace=600)
    trainer.agent.say(do="collect", order=1, what="collectives")  # answered after the stop was begun
    (row,) = trainer.agent.expect("collected")["body"]["ranks"]
    assert row["phase"] == "checkpoint"
    assert not (tmp_path / "ckpt.pt").exists()
    (tmp_path / "go").touch()
    assert trainer.agent.expect("stopped")["killed"] == 0
    assert (tmp_path / "ckpt.pt").exists()


def test_modes_links_file_objects_and_bytes_are_as_without_outrider(
    tmp_path: Path, make: Callable[..., Trainer]
) -> None:
    script = """
import io, os, torch
from pathlib import Path
state = {"x": torch.arange(5)}
torch.serialization.save = torch.save.__wrapped__
torch.save.__wrapped__(state, "plain.pt")
os.rename("plain.pt", "expected.bin")
torch.save(state, "plain.pt")
open("mode.pt", "wb").close(); os.chmod("mode.pt", 0o640)
torch.save(state, Path("mode.pt"))
open("target.pt", "wb").close(); os.symlink("target.pt", "link.pt")
torch.save(state, "link.pt")
with open("object.pt", "wb") as file:
    torch.save(state, file)
buffer = io.BytesIO(); torch.save(state, buffer)
for name in ("link.pt", "mode.pt", "object.pt", "plain.pt"):
    assert torch.equal(torch.load(name)["x"], state["x"])
try:
    torch.save(state, "no/such/folder.pt")
except Exception as error:
    print("ERROR", type(error).__name__)
try:
    torch.save(lambda: 0, "bad.pt")
except Exception as error:
    print("BAD", type(error).__name__, os.path.exists("bad.pt"))
"""
    trainer = make(script)
    trainer.announced()
    trainer.start()
    assert trainer.agent.expect("exited")["code"] == 0, trainer.read()
    assert (tmp_path / "plain.pt").read_bytes() == (tmp_path / "expected.bin").read_bytes()
    assert stat.S_IMODE((tmp_path / "mode.pt").stat().st_mode) == 0o640
    assert (tmp_path / "link.pt").is_symlink()
    assert "ERROR RuntimeError" in trainer.read()
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".outrider")]


def test_a_finished_checkpoint_is_reported_and_its_load_resumes_its_step(
    tmp_path: Path, make: Callable[..., Trainer]
) -> None:
    script = """
import os, torch
weight = torch.nn.Parameter(torch.zeros(2))
optimizer = torch.optim.SGD([weight], lr=0.1)
if os.path.exists("last.pt"):
    torch.load("last.pt")
for step in range(4):
    weight.grad = torch.ones(2); optimizer.step()
    torch.save(weight, "step_%d.pt" % step)
torch.save(weight, "once.pt")
torch.save(weight, "last.pt"); torch.save(weight, "last.pt")
"""
    trainer = make(script)
    trainer.announced()
    trainer.start()
    trainer.agent.expect("exited")
    trainer.stop()
    lines = [line for line in trainer.agent.lines if line.get("event") == "saved"]
    reported = [(line["path"], line["step"]) for line in lines if not line["first"]]
    here = str(tmp_path)
    assert [line["path"] for line in lines if line["first"]] == [f"{here}/{it}.pt" for it in ("step_0", "once", "last")]
    assert reported == [(f"{here}/step_{n}.pt", n + 1) for n in (1, 2, 3)] + [(f"{here}/last.pt", 4)]
    (pid,) = trainer.start(saves=[[f"{here}/last.pt", 104]])
    trainer.agent.expect("exited")
    reading = progress_page.read(str(trainer.volume / "progress" / "0"), pid)
    assert reading is not None
    assert (reading.base, reading.step) == (104, 108)


STEPPING = """
import os, sys, torch
weight = torch.nn.Parameter(torch.zeros(2))
optimizer = torch.optim.SGD([weight], lr=0.1)
def step():
    weight.grad = torch.ones(2); optimizer.step()
"""
FOLDERS = """
import torch.distributed.checkpoint as dcp
if os.path.exists("dcp/a"):
    dcp.load({"weight": torch.zeros(2)}, checkpoint_id="dcp/a")
step(); step()
dcp.save({"weight": weight.detach()}, checkpoint_id="dcp/a")
step()
dcp.save({"weight": weight.detach()}, storage_writer=dcp.FileSystemWriter("dcp/b"))
future = dcp.async_save({"weight": weight.detach()}, checkpoint_id="dcp/c")
step()
future.result()
"""
TENSORS = """
from safetensors.torch import load_file, save_file
if os.path.exists("model.safetensors"):
    load_file("model.safetensors")
step(); step()
save_file({"weight": weight.detach()}, "model.safetensors")
"""


def reported_and_resumed(trainer: Trainer, loaded: str) -> tuple[list[tuple[str, int]], tuple[int, int]]:
    """The saves that a first generation reports, and (base, step) of the next one, for which `loaded` has step 104."""
    trainer.announced()
    trainer.start()
    assert trainer.agent.expect("exited")["code"] == 0, trainer.read()
    trainer.stop()
    saved = [line for line in trainer.agent.lines if line.get("event") == "saved"]
    reported = [(os.path.relpath(line["path"], trainer.folder), line["step"]) for line in saved]
    (pid,) = trainer.start(saves=[[str(trainer.folder / loaded), 104]])
    assert trainer.agent.expect("exited")["code"] == 0, trainer.read()
    reading = progress_page.read(str(trainer.volume / "progress" / "0"), pid)
    assert reading is not None
    return reported, (reading.base, reading.step)


def test_distributed_checkpoints_are_reported_when_their_folder_is_complete(make: Callable[..., Trainer]) -> None:
    reported, resumed = reported_and_resumed(make(STEPPING + FOLDERS), "dcp/a")
    assert reported[0] == ("dcp/a", 2)
    assert ("dcp/b", 3) in reported[1:]  # reported with the next step; dcp/c, which a thread saves, when it is there
    assert sorted(path for path, _ in reported[1:]) == ["dcp/b", "dcp/c"]
    assert resumed == (104, 108)


def test_a_safetensors_file_is_a_checkpoint_the_first_time(make: Callable[..., Trainer]) -> None:
    pytest.importorskip("safetensors")
    reported, resumed = reported_and_resumed(make(STEPPING + TENSORS), "model.safetensors")
    assert (reported, resumed) == ([("model.safetensors", 2)], (104, 106))


HALF = """
import os, signal, torch
class Endless:
    def __reduce__(self):
        print("HALF", os.getpid(), ".", flush=True)
        while True:
            signal.pause()
weight = torch.nn.Parameter(torch.zeros(2))
weight.grad = torch.ones(2); torch.optim.SGD([weight], lr=0.1).step()
torch.save({"weight": weight, "endless": Endless()}, "ckpt.pt")
"""


@pytest.mark.exhaustive
def test_under_a_launcher_nothing_is_left_of_a_killed_save(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(HALF)
    container = Container(tmp_path)
    try:
        container.listen()
        container.run("sh", "-c", f"{sys.executable} train.py; true")
        hello = container.said(what="launcher")
        container.start(hello, 1)
        container.until(lambda: " ." in container.stdout())
        assert any(tmp_path.glob(".outrider-*"))
        os.kill(int(container.stdout().split()[1]), signal.SIGKILL)
        container.stop(hello, 1)
        assert not any(tmp_path.glob(".outrider-*"))
        assert not (tmp_path / "ckpt.pt").exists()
    finally:
        container.close()
