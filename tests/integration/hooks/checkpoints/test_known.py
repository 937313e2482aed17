"""A checkpoint is identified by its bytes after a rename, a link or a copy, and reported by its final name."""

from __future__ import annotations

import os
import pathlib
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from outrider.sidecar.shell.progress_pages import read_page
from tests.integration.hooks.agent import Trainer, wait_until
from tests.tiers import witnesses
from tests.warm import Warm
from training_hooks.abi import progress_page
from training_hooks.checkpoints import renames
from training_hooks.rank import known_checkpoints

pytestmark = pytest.mark.xdist_group("warm")
STEPPING = """
import os, pathlib, shutil, subprocess, sys, torch
weight = torch.nn.Parameter(torch.zeros(2))
optimizer = torch.optim.SGD([weight], lr=0.1)
def step():
    weight.grad = torch.ones(2); optimizer.step()
found = os.environ.get("FOUND")
if found:
    torch.load(found)
    step()
    sys.exit()
"""
WAYS = {
    "os.replace": ("new.tmp", 'os.replace("new.tmp", "last.pt")', "last.pt"),
    "os.rename": ("new.tmp", 'os.rename("new.tmp", "last.pt")', "last.pt"),
    "bytes": ("new.tmp", 'os.replace(b"new.tmp", b"last.pt")', "last.pt"),
    "pathlib": ("new.tmp", 'pathlib.Path("new.tmp").replace("last.pt")', "last.pt"),
    "shutil.move": ("new.tmp", 'shutil.move("new.tmp", "last.pt")', "last.pt"),
    "folder": (
        "making/model.pt",
        'shutil.rmtree("done", ignore_errors=True); os.rename("making", "done")',
        "done/model.pt",
    ),
}
"""(path of the save, what the script does then, path of the load)."""
UNSEEN = {
    "mv": 'subprocess.run(["mv", "new.tmp", "last.pt"])',
    "cp": 'subprocess.run(["cp", "new.tmp", "last.pt"])',
    "copyfile": 'shutil.copyfile("new.tmp", "last.pt")',
    "link": 'os.path.exists("last.pt") and os.unlink("last.pt"); os.link("new.tmp", "last.pt")',
    "symlink": 'os.path.lexists("last.pt") or os.symlink("new.tmp", "last.pt")',
    "by descriptor": 'at = os.open(".", os.O_RDONLY); os.replace("new.tmp", "last.pt", src_dir_fd=at, dst_dir_fd=at)',
    "opened": 'open("last.pt", "wb").write(open("new.tmp", "rb").read()); os.unlink("new.tmp")',
}
SAVES = """
for _ in range(3):
    os.makedirs(os.path.dirname({path!r}) or ".", exist_ok=True)
    step()
    torch.save(weight, {path!r})
    {then}
"""


@pytest.fixture
def make(warm: Warm, tmp_path: Path) -> Iterator[Callable[..., Trainer]]:
    made: list[Trainer] = []

    def trainer(text: str, **options: Any) -> Trainer:
        (tmp_path / "train.py").write_text(STEPPING + text)
        made.append(Trainer(tmp_path, "train.py", warm=warm, **options))
        return made[-1]

    yield trainer
    for each in made:
        each.close()


def ran(trainer: Trainer, **options: Any) -> tuple[list[dict[str, Any]], int]:
    """The messages about its saves, and the step from which it resumed."""
    already = len(trainer.agent.lines)
    (pid,) = trainer.start(**options)
    assert trainer.agent.expect("exited")["code"] == 0, trainer.read()
    reading = progress_page.read(str(trainer.volume / "progress" / "0"), pid)
    trainer.stop()
    assert reading is not None
    return [line for line in trainer.agent.lines[already:] if line.get("event") == "saved"], reading.base


def prints_of(lines: list[dict[str, Any]], beyond: int) -> list[list[Any]]:
    return [[each, line["step"] + beyond] for line in lines for each in line["prints"]]


@pytest.mark.slow
@pytest.mark.parametrize("way", witnesses(WAYS, "os.replace", "folder"))
def test_a_renamed_save_is_reported_by_its_new_name_and_its_load_resumes_its_step(
    tmp_path: Path, make: Callable[..., Trainer], way: str
) -> None:
    path, then, last = WAYS[way]
    trainer = make("exec(os.environ['SAVES'])\n")
    trainer.announced()
    lines, _ = ran(trainer, SAVES=SAVES.format(path=path, then=then))
    reported = [(line["path"], line["step"], line["first"]) for line in lines]
    assert reported == [(f"{tmp_path}/{last}", n, n == 1) for n in (1, 2, 3)]
    assert len({line["prints"][0] for line in lines}) == 3
    assert ran(trainer, FOUND=last, prints=prints_of(lines, 100)) == ([], 103)


@pytest.mark.slow
@pytest.mark.parametrize("way", witnesses(UNSEEN, "mv", "symlink"))
def test_a_copied_linked_or_moved_checkpoint_is_identified_by_its_bytes(
    tmp_path: Path, make: Callable[..., Trainer], way: str
) -> None:
    trainer = make("exec(os.environ['SAVES'])\n")
    trainer.announced()
    lines, _ = ran(trainer, SAVES=SAVES.format(path="new.tmp", then=UNSEEN[way]))
    os.utime(tmp_path / "last.pt", (1e9, 1e9))
    assert ran(trainer, FOUND="last.pt", prints=prints_of(lines, 100))[1] == 103


READERS = {
    'open("last.pt", "rb").read()': True,
    "import io; torch.load(io.BytesIO(pathlib.Path('last.pt').read_bytes()))": True,
    'subprocess.run(["cat", "last.pt"], stdout=subprocess.DEVNULL)': True,
    'torch._C.PyTorchFileReader("last.pt")': True,
    'os.path.exists("last.pt"); os.listdir("."); os.stat("last.pt"); open("other", "w").close()': False,
    'torch.load("other.pt")': False,
    "pass": False,
}


@pytest.mark.slow
def test_opening_a_checkpoint_by_other_means_is_seen_and_checking_for_it_is_not(
    tmp_path: Path, make: Callable[..., Trainer]
) -> None:
    import torch

    for name in ("last", "other"):
        torch.save(torch.ones(2), tmp_path / f"{name}.pt")
    trainer = make("exec(os.environ['READ'])\nstep(); open('last.pt', 'rb').read(); step()\n")
    trainer.announced()
    for read, is_opened in READERS.items():
        trainer.start(READ=read, saves=[[str(tmp_path / "last.pt"), 103]])
        assert trainer.agent.expect("exited")["code"] == 0, trainer.read()
        found = read_page(trainer.volume / "progress" / "0")
        trainer.stop()
        assert found is not None
        assert (found.base, found.opened) == (0, is_opened), read
    trainer.start(READ="pass", saves=[["/none/such.pt", 103]])
    assert trainer.agent.expect("exited")["code"] == 0, trainer.read()
    found = read_page(trainer.volume / "progress" / "0")
    assert found is not None
    assert found.opened, "if the file is not here, it counts as opened"


OVER = """
for _ in range({steps}):
    step()
torch.save(weight, {path!r})
{then}
"""


@pytest.mark.slow
@pytest.mark.parametrize("path", ["last.pt", "new.tmp"])
def test_a_newer_checkpoint_is_kept_when_an_older_state_replaces_it(
    tmp_path: Path, make: Callable[..., Trainer], path: str
) -> None:
    import torch

    torch.save(torch.ones(2), tmp_path / "last.pt")
    newest = (tmp_path / "last.pt").read_bytes()
    then = "os.replace('new.tmp', 'last.pt')" if path == "new.tmp" else ""
    trainer = make("exec(os.environ['SAVES'])\n")
    trainer.announced()
    kept = tmp_path / ".outrider-kept" / "research_gpt.step-103.last.pt"
    last, job = str(tmp_path / "last.pt"), {"TORCHELASTIC_RUN_ID": "research/gpt"}
    prints = [[known_checkpoints.fingerprint(last), 103]]
    ran(trainer, SAVES=OVER.format(steps=3, path=path, then=then) * 2, saves=[[last, 103]], prints=prints, **job)
    assert kept.read_bytes() == newest != (tmp_path / "last.pt").read_bytes()
    assert os.stat(last).st_nlink == os.stat(kept).st_nlink == 1
    (said,) = [line for line in trainer.agent.lines if line.get("word") == "newer kept"]
    assert said["sentence"] == f"last.pt of step 103 is kept as {kept}, because a state of step 3 takes its place"
    over = OVER.format(steps=3, path="last.pt", then="")
    ran(trainer, SAVES=over, saves=[[last, 90]], **job)
    assert os.listdir(kept.parent) == [kept.name], "the newest stays"
    (kept.parent / "other.step-1.last.pt").touch()
    ran(trainer, SAVES=over, saves=[[last, 110]], **job)
    assert sorted(os.listdir(kept.parent)) == ["other.step-1.last.pt", "research_gpt.step-110.last.pt"]


@pytest.mark.slow
def test_a_job_that_must_resume_saves_nothing_before_the_verdict(tmp_path: Path, make: Callable[..., Trainer]) -> None:
    import torch

    torch.save(torch.ones(2), tmp_path / "last.pt")
    newest = (tmp_path / "last.pt").read_bytes()
    trainer = make("step(); print('SAVES', flush=True); torch.save(weight, 'last.pt')\n")
    trainer.announced()
    trainer.start(saves=[[str(tmp_path / "last.pt"), 103]], OUTRIDER_REQUIRE_RESUME="1")
    wait_until(lambda: "SAVES" in trainer.read(), "its save")
    trainer.stop()
    assert (tmp_path / "last.pt").read_bytes() == newest


def test_a_file_shared_by_saves_of_two_steps_is_identified_by_its_name_only() -> None:
    found = known_checkpoints.Known()
    found.saved("/run/a/args.bin", 100, ["12-same"])
    found.saved("/run/a/model.pt", 100, ["12-one"])
    found.saved("/run/a/model.pt", 100, ["12-one"])
    found.saved("/run/b/args.bin", 200, ["12-same"])
    assert found.prints == {"12-same": 0, "12-one": 100}
    assert found.step_of("/run/b/args.bin") == 200


def test_a_fingerprint_is_of_size_first_and_last_bytes(tmp_path: Path) -> None:
    path = tmp_path / "large"
    body = bytearray(1 << 20)
    path.write_bytes(body)
    first = known_checkpoints.fingerprint(str(path))
    assert first.startswith(f"{1 << 20}-")
    for at, is_seen in ((0, True), (4095, True), (500_000, False), ((1 << 20) - 65536, True), ((1 << 20) - 1, True)):
        body[at] = 1
        path.write_bytes(body)
        assert (known_checkpoints.fingerprint(str(path)) != first) is is_seen, at
        body[at] = 0
    path.write_bytes(body[:-1])
    assert known_checkpoints.fingerprint(str(path)) != first
    assert known_checkpoints.fingerprint(str(path), {3}) == ""
    assert known_checkpoints.fingerprint(str(tmp_path)) == "", "a folder without .metadata"
    assert known_checkpoints.fingerprint("none\0such") == ""
    path.write_bytes(b"")
    assert known_checkpoints.fingerprint(str(path)).startswith("0-")


def test_an_unreadable_file_for_a_launchers_ranks_counts_as_absent(tmp_path: Path) -> None:
    for text in ("", "[1]", "{}", '{"saves": 3, "prints": []}'):
        (tmp_path / known_checkpoints.FILE).write_text(text)
        assert known_checkpoints.read(str(tmp_path)).step_of("x") == 0
    known_checkpoints.write(str(tmp_path), [["/a/x.pt", 3]], [["5-x", 4]])
    assert known_checkpoints.read(str(tmp_path)).step_of("/a/x.pt") == 3
    known_checkpoints.write(str(tmp_path / "gone"), [], [])


def test_a_wrapper_of_an_os_function_looks_like_the_function(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("rename", "replace"):
        monkeypatch.setattr(os, name, getattr(os, name))
    real = os.replace
    renames.follow(lambda: None)
    try:
        assert os.replace is not real
        assert pickle.loads(pickle.dumps(os.replace)) is os.replace
        assert os.rename in os.supports_dir_fd
        assert (os.replace.__name__, os.replace.__doc__) == (real.__name__, real.__doc__)

        class Accessor:
            replace = os.replace

        (tmp_path / "a").touch()
        Accessor().replace(tmp_path / "a", tmp_path / "b")
        os.rename(src=tmp_path / "b", dst=tmp_path / "c")
        with pytest.raises(FileNotFoundError):
            os.rename(tmp_path / "gone", tmp_path / "d")
        with pytest.raises(TypeError):
            os.rename(tmp_path / "gone")
        assert pathlib.Path(tmp_path / "c").exists()
    finally:
        os.supports_dir_fd.difference_update({os.rename, os.replace})
