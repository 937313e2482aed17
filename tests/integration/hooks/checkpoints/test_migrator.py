"""`training_hooks.migrator` in real worker processes: the moment of a save, and the errors of misuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.hooks.agent import Line, Trainer, wait_until
from tests.tiers import witnesses
from tests.warm import Warm
from training_hooks.checkpoints import planned_save_file

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("warm")]

BEGIN = """
import os, sys, torch
from pathlib import Path
from torch.utils.data import DataLoader
torch.set_num_threads(1)
from %s import migrator
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.999)
progress = {"step": 0}
for name, value in (("model", model), ("optimizer", optimizer), ("schedule", schedule), ("progress", progress)):
    migrator.register(name, value)
migrator.listening()
if migrator.resume:
    migrator.load_ckpt()
Path("begins").write_text(str(progress["step"]))
def step(x):
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
    schedule.step()
    progress["step"] += 1
    if progress["step"] == 3:
        Path("trains").touch()
"""
WITH_LOADER = "for x in DataLoader(torch.ones(1_000_000, 2), batch_size=1):\n    step(x)\n"
WITHOUT_LOADER = "while True:\n    step(torch.ones(1, 2))\n"
EVALUATES = """
import time
for _ in range(3):
    step(torch.ones(1, 2))
model.eval()
while True:
    Path("evaluates").touch()
    time.sleep(0.01)
"""


@pytest.fixture
def make(warm: Warm, tmp_path: Path) -> Iterator[Callable[..., Trainer]]:
    made: list[Trainer] = []

    def trainer(text: str, **options: Any) -> Trainer:
        (tmp_path / "train.py").write_text(text)
        options.setdefault("OUTRIDER_MIGRATION_DIR", str(tmp_path / "volume"))
        made.append(Trainer(tmp_path, "train.py", warm=warm, **options))
        made[-1].announced()
        return made[-1]

    yield trainer
    for each in made:
        each.close()


def trains(trainer: Trainer) -> Line:
    offer = trainer.agent.expect("offers")
    wait_until((trainer.folder / "trains").exists, "its first steps")
    return offer


def saved(trainer: Trainer, order: int = 5, seconds: float = 300.0) -> Line:
    what = {"order": order, "generation": [1, trainer.number], "seconds": seconds, "last": True}
    trainer.agent.say(do="save_state", **what)
    return trainer.agent.expect("state_saved")


def content(folder: Path) -> dict[str, Any]:
    import torch

    record = planned_save_file.read(str(folder / "volume"))
    assert record is not None
    path = planned_save_file.checked(str(folder / "volume"), record)
    assert path is not None
    found: dict[str, Any] = torch.load(path, weights_only=False)
    return found


@pytest.mark.parametrize("loop", [WITH_LOADER, WITHOUT_LOADER], ids=["with a DataLoader", "without"])
def test_a_save_has_a_whole_step_and_the_next_process_continues_after_it(
    make: Callable[..., Trainer], tmp_path: Path, loop: str
) -> None:
    trainer = make(BEGIN % "training_hooks" + loop)
    trainer.start()
    assert trains(trainer)["names"] == ["model", "optimizer", "progress", "schedule"]
    answer = saved(trainer)
    assert answer.get("error") is None
    state = content(tmp_path)
    assert state["step"] == answer["step"] == state["state"]["progress"]["step"]
    assert state["state"]["schedule"]["last_epoch"] == answer["step"], "the scheduler has been stepped too"
    assert trainer.agent.expect("saved")["path"] == answer["path"]
    trainer.stop()
    (tmp_path / "begins").unlink()
    trainer.start()
    wait_until(lambda: (tmp_path / "begins").exists() and bool((tmp_path / "begins").read_text()), "the next process")
    assert (tmp_path / "begins").read_text() == str(answer["step"])


def test_an_evaluation_without_batches_saves_as_well(make: Callable[..., Trainer], tmp_path: Path) -> None:
    trainer = make(BEGIN % "migration" + EVALUATES)
    trainer.start()
    trainer.agent.expect("offers")
    wait_until((tmp_path / "evaluates").exists, "the evaluation")
    assert saved(trainer, seconds=60.0)["step"] == 3
    assert content(tmp_path)["state"]["progress"] == {"step": 3}


def test_the_same_order_is_answered_again_and_saved_once(make: Callable[..., Trainer], tmp_path: Path) -> None:
    trainer = make(BEGIN % "training_hooks" + WITH_LOADER)
    trainer.start()
    trains(trainer)
    assert saved(trainer) == saved(trainer)
    assert saved(trainer, order=6)["path"].endswith("-2.pth")


def test_before_the_first_step_there_is_nothing_to_save(make: Callable[..., Trainer]) -> None:
    trainer = make(BEGIN % "training_hooks" + "import time\ntime.sleep(600)\n")
    trainer.start()
    trainer.agent.expect("offers")
    assert "no step was made yet" in saved(trainer)["error"]


def test_a_rank_without_registered_state_gets_no_request(make: Callable[..., Trainer]) -> None:
    trainer = make("import time\ntime.sleep(600)\n")
    trainer.start()
    assert "no rank of this member can save its state" in saved(trainer)["error"]


def test_a_sidecar_that_reconnects_gets_the_offer_again(make: Callable[..., Trainer]) -> None:
    trainer = make(BEGIN % "training_hooks" + WITH_LOADER)
    trainer.start()
    offer = trainer.agent.expect("offers")
    trainer.agent.hang_up()
    trainer.announced()
    assert trainer.agent.expect("offers") == offer


def test_a_script_keeps_its_own_module_of_that_name(make: Callable[..., Trainer], tmp_path: Path) -> None:
    (tmp_path / "migration.py").write_text("migrator = 'mine'\n")
    (tmp_path / "training_hooks.py").write_text("migrator = 'mine too'\n")
    trainer = make(
        "import migration, training_hooks\nfrom pathlib import Path\n"
        "Path('found').write_text(migration.migrator + training_hooks.migrator)\n"
    )
    trainer.start()
    trainer.agent.expect("exited")
    assert (tmp_path / "found").read_text() == "minemine too"


WRONG = {
    "migrator.register('x', 3)": "register('x'): Invalid value: int: must be a dict, a list, or have state_dict",
    "migrator.register('', {})": "name: Invalid value: '': must be a str that is not empty",
    "migrator.register('x', {}); migrator.register('x', {})": "register('x'): Duplicate value: ",
    "migrator.listening()": "register: Required value: call register(name, value) before listening()",
    "migrator.load_ckpt()": "there is no saved state to load; check migrator.resume first",
    "migrator.resumed": "has no attribute 'resumed'",
}


@pytest.mark.parametrize("wrong", witnesses(WRONG, "migrator.register('x', 3)", "migrator.load_ckpt()"))
def test_misuse_raises_an_error_that_names_the_fix(make: Callable[..., Trainer], wrong: str) -> None:
    trainer = make(f"from training_hooks import migrator\n{wrong}\n")
    trainer.start()
    assert WRONG[wrong] in trainer.agent.expect("exited")["error"]["message"]


def test_a_load_before_all_is_registered_names_the_missing_objects(make: Callable[..., Trainer]) -> None:
    trainer = make(BEGIN % "training_hooks" + WITH_LOADER)
    trainer.start()
    trains(trainer)
    saved(trainer)
    trainer.finish()
    other = make("from training_hooks import migrator\nmigrator.register('model', {})\nmigrator.load_ckpt()\n")
    other.start()
    message = other.agent.expect("exited")["error"]["message"]
    assert "the saved state also has 'optimizer', 'progress', 'schedule'" in message


def test_a_sharded_model_is_refused_by_name(make: Callable[..., Trainer]) -> None:
    trainer = make(
        "import torch\nfrom training_hooks import migrator\n"
        "class FullyShardedDataParallel(torch.nn.Module):\n    pass\n"
        "migrator.register('model', torch.nn.Sequential(FullyShardedDataParallel()))\n"
    )
    trainer.start()
    message = trainer.agent.expect("exited")["error"]["message"]
    assert "register('model'): Forbidden: FullyShardedDataParallel is sharded over the ranks" in message
