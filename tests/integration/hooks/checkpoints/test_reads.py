"""Without a known save, a read before the first step of a file written in training may be a load."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.sidecar.shell.progress_pages import read_page
from tests.integration.hooks.agent import Trainer
from tests.warm import Warm
from training_hooks.rank.checkpoint_reads import Reads

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("warm")]
SCRIPT = """
import builtins, io, os, pathlib, pickle, torch
weight = torch.nn.Parameter(torch.zeros(2))
optimizer = torch.optim.SGD([weight], lr=0.1)
def step():
    weight.grad = torch.ones(2); optimizer.step()
exec(os.environ["BEFORE"])
step()
assert type(open) is type(len) and io.open is open, "`open` is restored at the first step"
exec(os.environ["BEHIND"])
"""
SAVED = "pickle.dump(1, open('state.pkl', 'wb')); torch.save(1, io.BytesIO()); open('run.log', 'w').write('x')"
READERS = {
    "pickle.load(open('state.pkl', 'rb'))": True,
    "pathlib.Path('state.pkl').read_bytes()": True,
    "io.open(file=b'state.pkl', mode='rb').close()": True,
    "open('state.pkl', 'ab').close()": False,
    "os.stat('state.pkl'); os.path.exists('state.pkl')": False,
    "open('given.pkl', 'rb').close()": False,
    "open('run.log').close()": False,
    "open('own.txt', 'w').write('x'); open('own.txt').close()": False,
    "open(os.open('given.pkl', os.O_RDONLY)).close()": False,
}


@pytest.fixture
def trainer(warm: Warm, tmp_path: Path) -> Iterator[Trainer]:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "given.pkl").write_bytes(b"x")
    made = Trainer(tmp_path, "train.py", warm=warm)
    made.announced()
    yield made
    made.close()


@pytest.mark.parametrize(("before", "is_of_training"), [(0.004, True), (0.1, False)])
def test_a_files_time_is_the_kernels_last_tick(tmp_path: Path, before: float, is_of_training: bool) -> None:
    began = time.time() - 10.0
    (tmp_path / "state.pkl").write_bytes(b"x")
    os.utime(tmp_path / "state.pkl", (began - before, began - before))
    looking = Reads(began)
    looking.loaded(str(tmp_path / "state.pkl"))
    assert looking.end() == is_of_training


def was_seen(trainer: Trainer, before: str, behind: str = "", **options: list[list[object]]) -> bool:
    trainer.start(BEFORE=before, BEHIND=behind, **options)
    assert trainer.agent.expect("exited")["code"] == 0, trainer.read()
    reading = read_page(trainer.volume / "progress" / "0")
    trainer.stop()
    assert reading is not None
    return reading.opened


def test_reading_a_file_written_in_training_before_the_first_step_is_seen(trainer: Trainer) -> None:
    assert not was_seen(trainer, "open('given.pkl', 'rb').close()", SAVED), "nothing has trained yet"
    for reader, expected in READERS.items():
        assert was_seen(trainer, reader) == expected, reader
    assert not was_seen(trainer, "", "open('state.pkl', 'rb').close()"), "behind the first step"
    saves: list[list[object]] = [[str(trainer.folder / "given.pkl"), 7]]
    assert not was_seen(trainer, "open('state.pkl', 'rb').close()", saves=saves), "what is saved is known"
