"""Saves on a disk without room for two files lose no old file, and a file that fits in place is saved.

They run in a real worker process and on a real file system of 10 MB.
"""

from __future__ import annotations

import errno
import functools
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.hooks.agent import Trainer
from tests.warm import Warm
from training_hooks.checkpoints import disk_room, save_hooks

pytestmark = pytest.mark.xdist_group("warm")
MIB = 1 << 20
SAVING = """
import os, sys, torch
def save(megabytes, path, **more):
    try:
        torch.save({"weights": torch.full((megabytes * 1_000_000 // 4,), float(step)), "step": step}, path, **more)
        print("SAVED", step, megabytes, flush=True)
    except BaseException as error:
        print("FAILED", step, type(error).__name__, getattr(error, "errno", None), flush=True)
"""


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 10 MB."""
    place = tmp_path / "small"
    place.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=10m", "tmpfs", str(place)], capture_output=True)
    if mount.returncode:
        pytest.skip(f"no file system can be mounted here: {mount.stderr.decode()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


Said = tuple[list[list[str]], list[dict[str, Any]]]


@pytest.fixture
def say(warm: Warm, tmp_path: Path) -> Callable[..., Said]:
    return functools.partial(said, warm, tmp_path)


def said(warm: Warm, folder: Path, body: str, **variables: str) -> Said:
    """The output of a script that saves, and the messages of the hooks."""
    (folder / "train.py").write_text(SAVING + body)
    trainer = Trainer(folder, "train.py", warm=warm, **variables)
    try:
        trainer.announced()
        trainer.start()
        assert trainer.agent.expect("exited")["code"] == 0, trainer.read()
        reported = [line for line in trainer.agent.lines if line.get("event") == "data"]
        return [line.split() for line in trainer.read().splitlines() if "ED " in line], reported
    finally:
        trainer.close()


def loaded(path: Path) -> int:
    import torch

    return int(torch.load(path)["step"])


@pytest.mark.slow
def test_a_disk_that_has_room_for_one_file_keeps_every_save(say: Callable[..., Said], small: Path) -> None:
    lines, reported = say(f"for step in (1, 2, 3):\n    save(6, {str(small / 'last.pt')!r})\n")
    assert [line[0] for line in lines] == ["SAVED"] * 3
    assert loaded(small / "last.pt") == 3
    assert os.listdir(small) == ["last.pt"]
    assert [(line["word"], line["warning"]) for line in reported] == [("not atomic", True)]
    assert "No space left on device" in reported[0]["sentence"]


@pytest.mark.slow
def test_a_save_that_does_not_fit_raises_in_the_script_and_the_old_file_stays(
    say: Callable[..., Said], small: Path
) -> None:
    path = str(small / "last.pt")
    lines, reported = say(f"step = 1; save(4, {path!r})\nstep = 2; save(12, {path!r})\n")
    assert lines == [["SAVED", "1", "4"], ["FAILED", "2", "OSError", str(errno.ENOSPC)]]
    assert loaded(small / "last.pt") == 1
    assert (os.listdir(small), [line["word"] for line in reported]) == (["last.pt"], ["no room"])
    assert "was not saved at step 0: No space left on device (" in reported[0]["sentence"]
    assert "of its 10 MiB are free)" in reported[0]["sentence"]


@pytest.mark.slow
def test_a_job_that_requires_atomic_saves_keeps_the_old_file(say: Callable[..., Said], small: Path) -> None:
    path = str(small / "last.pt")
    lines, reported = say(f"for step in (1, 2):\n    save(6, {path!r})\n", OUTRIDER_ATOMIC_SAVE="required")
    assert lines == [["SAVED", "1", "6"], ["FAILED", "2", "OSError", str(errno.ENOSPC)]]
    assert loaded(small / "last.pt") == 1
    assert (os.listdir(small), [line["word"] for line in reported]) == (["last.pt"], ["no room"])
    assert "was not saved at step 0: No space left on device (" in reported[0]["sentence"]
    assert "of its 10 MiB are free)" in reported[0]["sentence"]


@pytest.mark.slow
def test_saves_are_atomic_again_once_there_is_room(say: Callable[..., Said], small: Path) -> None:
    path, ballast = str(small / "last.pt"), str(small / "ballast")
    body = f"""
step = 1; save(4, {path!r})
open({ballast!r}, "wb").write(bytes(4 << 20))
step = 2; save(4, {path!r})
os.unlink({ballast!r})
step = 3; save(4, {path!r})
"""
    lines, reported = say(body)
    assert [line[0] for line in lines] == ["SAVED"] * 3
    assert loaded(small / "last.pt") == 3
    assert [line["word"] for line in reported] == ["not atomic", "atomic"]


def written(path: str, length: int, fails: OSError | None = None) -> None:
    with open(path, "wb") as file:
        file.write(bytes(length // 2))
        if fails is not None and ".outrider-" in path:
            raise fails
        file.write(bytes(length - length // 2))


@pytest.mark.parametrize(("number", "goes"), [(errno.ENOSPC, True), (errno.EDQUOT, False)])
def test_on_a_quota_no_save_overwrites_the_old_file(tmp_path: Path, watched: Any, number: int, goes: bool) -> None:
    """No file system with quotas is available here: the kernel's error is simulated."""
    path = tmp_path / "last.pt"
    path.write_bytes(b"old" * 1000)
    failure = OSError(number, os.strerror(number))

    def save() -> None:
        save_hooks.whole(watched, "torch.save", str(path), lambda to: written(to, 2000, failure), lambda: 2000)

    if goes:
        save()
        assert path.read_bytes() == bytes(2000)
    else:
        with pytest.raises(OSError, match="uota") as raised:
            save()
        assert raised.value.errno == number
        assert path.read_bytes() == b"old" * 1000
    assert not list(tmp_path.glob(".outrider-*"))


def test_a_folder_that_does_not_fit_on_the_disk_does_not_cost_the_old_file(small: Path, watched: Any) -> None:
    path = small / "last.pt"
    path.write_bytes(bytes(MIB))
    subprocess.run(["mount", "-o", f"remount,nr_inodes={len(os.listdir(small)) + 1}", str(small)], check=True)
    with pytest.raises(OSError, match="No space left"):
        save_hooks.whole(watched, "torch.save", str(path), lambda to: written(to, 2 * MIB), lambda: 2 * MIB)
    assert path.read_bytes() == bytes(MIB)
    save_hooks.whole(watched, "torch.save", str(path), lambda to: written(to, MIB // 2), lambda: MIB // 2)
    assert path.read_bytes() == bytes(MIB // 2)


def test_without_a_writable_folder_a_save_goes_in_place_unless_it_must_be_atomic(
    tmp_path: Path, watched: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that is read-only even for root."""
    path = tmp_path / "bound" / "last.pt"
    path.parent.mkdir()
    path.write_bytes(b"old")
    binds = (["mount", "--bind", str(path), str(path)], ["mount", "--bind", str(path.parent), str(path.parent)],
             ["mount", "-o", "remount,bind,ro", str(path.parent)])  # fmt: skip
    if subprocess.run(binds[1], capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        subprocess.run(binds[0], check=True)
        subprocess.run(binds[2], check=True)
        monkeypatch.setenv("OUTRIDER_ATOMIC_SAVE", "required")
        with pytest.raises(OSError, match="Read-only"):
            save_hooks.whole(watched, "torch.save", str(path), lambda to: written(to, 100), lambda: 100)
        assert path.read_bytes() == b"old"
        monkeypatch.delenv("OUTRIDER_ATOMIC_SAVE")
        save_hooks.whole(watched, "torch.save", str(path), lambda to: written(to, 100), lambda: 100)
        assert path.read_bytes() == bytes(100)
    finally:
        subprocess.run(["umount", "-R", "-l", str(path.parent)], check=True)


def test_the_measured_size_is_never_below_the_written_one(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = str(tmp_path / ("a long name of a checkpoint " * 5 + ".pt"))
    state = {f"layer {n}": torch.zeros(10_000 + n) for n in range(100)}
    torch.save(state, path)
    counted = disk_room.measured(lambda file: torch.save(state, file), path)
    assert os.path.getsize(path) <= counted <= 1.5 * os.path.getsize(path)
