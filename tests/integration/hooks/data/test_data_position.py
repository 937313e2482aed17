"""Positions in one real worker process: how checkpoints record them, and how loads use them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.hooks.agent import Trainer
from tests.tiers import witnesses
from tests.warm import Warm
from training_hooks.abi import progress_page, rank_files

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("warm")]
BEGIN = """
import json, os, sys
import torch
import torch.distributed.checkpoint as dcp
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

torch.set_num_threads(1)

class Numbers(Dataset):
    def __init__(self, length=103):
        self.length = length
    def __len__(self):
        return self.length
    def __getitem__(self, index):
        return index

weight = torch.nn.Parameter(torch.zeros(2))
weight.grad = torch.ones(2)
optimizer = torch.optim.SGD([weight], lr=0.1)
SEEN = open("seen-" + os.environ["OUTRIDER_GENERATION"], "a", buffering=1)

def loader(length=103, workers=0, **options):
    data = Numbers(length)
    sampler = DistributedSampler(data, 1, 0, **options)
    return sampler, DataLoader(data, batch_size=4, sampler=sampler, num_workers=workers)

def train(batches, steps=None, name="train"):
    for number, batch in enumerate(batches):
        optimizer.step()
        print(json.dumps([name, batch.tolist()]), file=SEEN)
        if number + 1 == steps:
            return

def save(path="ckpt.pt"):
    torch.save({"weight": weight.detach()}, path)

def load(path="ckpt.pt"):
    if os.path.exists(path):
        torch.load(path)

FIRST = os.environ["OUTRIDER_GENERATION"] == "1.1"
"""


class Worker:
    """A script with the above before it, run generation after generation."""

    def __init__(self, warm: Warm, folder: Path, text: str, **env: str) -> None:
        (folder / "train.py").write_text(BEGIN + text)
        self.folder = folder
        self.trainer = Trainer(folder, "train.py", warm=warm, **env)
        self.trainer.announced()

    def run(self, **env: str) -> list[dict[str, Any]]:
        """Runs one generation to its end; returns its messages about data."""
        self.trainer.agent.lines.clear()
        number = self.trainer.number + 1
        self.trainer.start(**({"OUTRIDER_ELASTIC_DATA": "1", "OUTRIDER_GENERATION": f"1.{number}"} | env))
        assert self.trainer.agent.expect("exited")["code"] == 0, self.trainer.read()
        self.trainer.stop()
        return [line for line in self.trainer.agent.lines if line.get("event") == "data"]

    def seen(self, number: int, name: str = "train") -> list[int]:
        lines = (json.loads(line) for line in (self.folder / f"seen-1.{number}").read_text().splitlines())
        return [sample for kind, batch in lines if kind == name for sample in batch]


@pytest.fixture
def make(warm: Warm, tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    made: list[Worker] = []

    def worker(text: str, **env: str) -> Worker:
        made.append(Worker(warm, tmp_path, text, **env))
        return made[-1]

    yield worker
    for each in made:
        each.trainer.close()


def words(reported: list[dict[str, Any]]) -> list[str]:
    return [line["word"] for line in reported]


def assert_goes_on(worker: Worker, reported: list[dict[str, Any]], done: int = 20) -> None:
    assert words(reported) == ["loaded"]
    assert reported[0]["detail"] == {"epoch": 0, "done": done, "length": 103, "left": 103 - done, "world_before": 1,
                                 "world": 1}  # fmt: skip
    assert sorted(worker.seen(1)[:done] + worker.seen(2)) == list(range(103))


@pytest.mark.parametrize("workers", witnesses([0, 2], 2))
def test_a_position_counts_consumed_samples_and_not_those_drawn(make: Callable[[str], Worker], workers: int) -> None:
    worker = make(f"""
load()
sampler, batches = loader(workers={workers})
if FIRST:
    reading = iter(batches)
    train(reading, 5)
    next(reading)
    save()
else:
    train(batches)
""")
    assert worker.run() == []
    assert_goes_on(worker, worker.run())


@pytest.mark.parametrize("memory", witnesses([str(1 << 20), ""], str(1 << 20)))
def test_a_saved_state_has_the_position_and_the_steps_made(make: Callable[..., Worker], memory: str) -> None:
    worker = make(
        """
from training_hooks import checkpoint
found = checkpoint.load("state.pt")
sampler, batches = loader()
reading = iter(batches)
train(reading, 5 if FIRST else None)
if FIRST:
    checkpoint.save({"weight": weight.detach()}, step=1, path="state.pt")
""",
        OUTRIDER_CHECKPOINT_MEMORY=memory,
    )
    worker.run()
    reported = worker.run()
    assert words(reported) == ["state loaded", "loaded"]
    assert ("memory" in reported[0]["sentence"]) == bool(memory)
    assert_goes_on(worker, reported[1:])
    reading = progress_page.read(rank_files.page_path(str(worker.trainer.volume), 0))
    assert (reading.base, reading.step) == (5, 5 + 21)


PLACES = {
    "a DCP folder": ("dcp.save({'weight': weight.detach()}, checkpoint_id='dcp')",
                     "dcp.load({'weight': weight.detach()}, checkpoint_id='dcp')"),
    "an asynchronous one": ("later = dcp.async_save({'weight': weight.detach()}, checkpoint_id='dcp');"
                            "train(reading, 3); later.result()",
                            "dcp.load({'weight': weight.detach()}, checkpoint_id='dcp')"),
    "a renamed file": ("save('tmp.pt'); os.rename('tmp.pt', 'ckpt.pt')", "load()"),
    "an open file": ("with open('ckpt.pt', 'wb') as file: torch.save({'weight': weight.detach()}, file)",
                     "with open('ckpt.pt', 'rb') as file: torch.load(file)"),
    "a link": ("open('real.pt', 'w').close(); os.symlink('real.pt', 'ckpt.pt'); save()", "load()"),
    "the best beside the last": ("save('last.pt')", "load('best.pt'); load('last.pt'); load('best.pt')"),
}  # fmt: skip


@pytest.mark.parametrize("how", witnesses(PLACES, "a DCP folder", "a renamed file"))
def test_a_position_is_found_however_the_checkpoint_was_saved(make: Callable[[str], Worker], how: str) -> None:
    save, load = PLACES[how]
    worker = make(f"""
sampler, batches = loader()
if FIRST:
    reading = iter(batches)
    train(reading, 2)
    save("best.pt")
    train(reading, 3)
    {save}
else:
    {load}
    train(batches)
""")
    assert worker.run() == []
    assert_goes_on(worker, worker.run())


ELSEWHERE = {
    "an evaluation beside it": "_, val = loader(); load()\n@torch.no_grad()\ndef f(): train(val, name='val')\nf()",
    "a sloppy evaluation": "val, checks = loader()\nload()\nfor batch in checks: pass",
    "a look at the first batch": "load(); next(iter(batches))",
    "another optimizer": "load(); other = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)",
}


@pytest.mark.parametrize("what", witnesses(ELSEWHERE, "a look at the first batch"))
def test_a_pass_without_training_does_not_use_a_position(make: Callable[[str], Worker], what: str) -> None:
    worker = make(f"""
sampler, batches = loader()
if FIRST:
    train(reading := iter(batches), 5)
    save()
else:
    {ELSEWHERE[what].replace(chr(10), chr(10) + "    ")}
    train(batches)
""")
    assert worker.run() == []
    reported = worker.run()
    assert_goes_on(worker, reported)
    assert len(worker.seen(2, "val")) == (103 if "an evaluation" in what else 0)


def test_a_script_without_set_epoch_that_saves_after_its_epochs_starts_a_whole_epoch(
    make: Callable[[str], Worker],
) -> None:
    worker = make("load(); sampler, batches = loader()\ntrain(batches); save()\n")
    assert worker.run() == []
    assert worker.run() == []
    assert sorted(worker.seen(2)) == list(range(103))


def test_an_epoch_that_was_complete_when_it_was_saved_is_over(make: Callable[[str], Worker]) -> None:
    worker = make("""
load(); sampler, batches = loader()
for epoch in range(0 if FIRST else int(os.environ["BEGIN"]), 2):
    sampler.set_epoch(epoch)
    train(batches, name="epoch %d" % epoch)
    if FIRST:
        save(); break
""")
    worker.run()
    assert words(worker.run(BEGIN="0")) == ["loaded"]
    assert worker.seen(2, "epoch 0") == []
    assert len(worker.seen(2, "epoch 1")) == 103
    assert worker.run(BEGIN="1") == [], "the position is of epoch 0"
    assert len(worker.seen(3, "epoch 1")) == 103


def test_only_the_first_pass_of_a_script_that_names_no_epochs_is_shortened(make: Callable[[str], Worker]) -> None:
    worker = make("""
load(); sampler, batches = loader()
for pass_ in range(2):
    reading = iter(batches)
    print(json.dumps(["length", [len(batches)]]), file=SEEN)
    if FIRST:
        train(reading, 5); save(); break
    train(reading, name="pass %d" % pass_)
""")
    worker.run()
    worker.run()
    assert (len(worker.seen(2, "pass 0")), len(worker.seen(2, "pass 1"))) == (83, 103)
    assert worker.seen(2, "length") == [21, 26], "in batches"


def test_persistent_workers_change_nothing(make: Callable[[str], Worker]) -> None:
    worker = make("""
load()
data = Numbers()
sampler = DistributedSampler(data, 1, 0)
batches = DataLoader(data, batch_size=4, sampler=sampler, num_workers=2, persistent_workers=True)
for epoch in range(0 if FIRST else 1, 3):
    sampler.set_epoch(epoch)
    for number, batch in enumerate(batches):
        optimizer.step()
        print(json.dumps(["epoch %d" % epoch, batch.tolist()]), file=SEEN)
        if FIRST and (epoch, number) == (1, 4):
            save()
            sys.exit()
""")
    worker.run()
    assert words(worker.run()) == ["loaded"]
    assert sorted(worker.seen(1, "epoch 1") + worker.seen(2, "epoch 1")) == list(range(103))
    assert sorted(worker.seen(2, "epoch 2")) == list(range(103))


def test_a_pass_that_was_left_early_is_not_recorded(make: Callable[[str], Worker]) -> None:
    worker = make("load(); sampler, batches = loader()\ntrain(batches, 5); save()\n")
    worker.run()
    assert worker.run() == []
    assert not [name for name in os.listdir(worker.folder) if name.endswith(".json")]


SHORT = "load(); _, batches = loader()\ntrain(reading := iter(batches), 5 if FIRST else None); save()\n"
OTHERS = {
    "another length": ("length=100", "this sampler has 100 samples shuffled with seed 0"),
    "another seed": ("seed=5", "this sampler has 103 samples shuffled with seed 5"),
    "another order": ("shuffle=False", "this sampler has 103 samples in their own order"),
}


@pytest.mark.parametrize("what", witnesses(OTHERS, "another seed"))
def test_a_position_of_other_data_is_reported_and_not_used(make: Callable[[str], Worker], what: str) -> None:
    options, said = OTHERS[what]
    worker = make(f"""
load(); sampler, batches = loader() if FIRST else loader({options})
train(reading := iter(batches), 5 if FIRST else None); save()
""")
    worker.run()
    reported = worker.run()
    assert words(reported) == ["ignored"]
    assert said in reported[0]["sentence"]
    assert str(worker.folder / ".ckpt.pt.position.json") in reported[0]["sentence"]
    assert len(set(worker.seen(2))) == len(worker.seen(2)) >= 100


@pytest.mark.parametrize("content", witnesses([b"", b"{}", b'{"outrider": "data position", "version": 9}'], b"{}"))
def test_an_unreadable_file_is_reported_by_its_name(make: Callable[[str], Worker], content: bytes) -> None:
    worker = make(SHORT)
    worker.run()
    file = worker.folder / ".ckpt.pt.position.json"
    file.write_bytes(content)
    reported = worker.run()
    assert words(reported) == ["ignored"]
    assert reported[0]["warning"]
    assert str(file) in reported[0]["sentence"]
    assert len(worker.seen(2)) == 103


def test_a_failed_write_of_the_position_does_not_affect_the_save(make: Callable[[str], Worker]) -> None:
    long = "c" * 245
    worker = make(f"sampler, batches = loader()\ntrain(reading := iter(batches), 5); save({long!r})\n")
    reported = worker.run()
    assert words(reported) == ["not written"]
    assert "File name too long" in reported[0]["sentence"]
    assert (worker.folder / long).stat().st_size > 0
    assert not [name for name in os.listdir(worker.folder) if name.startswith(".")]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a volume that is full")
def test_on_a_full_volume_the_save_is_as_without_it(make: Callable[[str], Worker]) -> None:
    worker = make("""
import subprocess
sampler, batches = loader()
train(reading := iter(batches), 5)
os.mkdir("full")
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12k", "full", "full"], check=True)
try:
    save("full/ckpt.pt")
    with open("full/rest", "wb", buffering=0) as rest:
        try:
            while True:
                rest.write(b"x")
        except OSError:
            pass
    size = os.path.getsize("full/ckpt.pt")
    os.environ["OUTRIDER_ATOMIC_SAVE"] = "0"
    os.unlink("full/.ckpt.pt.position.json")
    with open("full/rest", "ab", buffering=0) as rest:
        try:
            while True:
                rest.write(b"x" * 4096)
        except OSError:
            pass
    save("full/ckpt.pt")
    assert os.path.getsize("full/ckpt.pt") == size and torch.load("full/ckpt.pt")
finally:
    subprocess.run(["umount", "full"], check=True)
""")
    reported = worker.run()
    assert words(reported) == ["not written"], reported
    assert "No space left on device" in reported[0]["sentence"]


def test_an_unsupported_loader_is_not_changed_and_reported(make: Callable[[str], Worker]) -> None:
    worker = make("""
class Own(DistributedSampler):
    def __iter__(self):
        return reversed(list(super().__iter__()))
class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(range(20))
data = Numbers()
train(DataLoader(data, batch_size=4, sampler=Own(data, 1, 0, shuffle=False)))
train(DataLoader(Stream(), batch_size=4), name="stream")
train(DataLoader(data, batch_size=4, shuffle=False), name="plain")
save()
""")
    reported = worker.run()
    assert words(reported) == ["not elastic"] * 3
    assert [part for line in reported for part in ("Own orders", "IterableDataset", "SequentialSampler")
            if part in line["sentence"]] == ["Own orders", "IterableDataset", "SequentialSampler"]  # fmt: skip
    assert worker.seen(1) == list(reversed(range(103)))
    assert worker.seen(1, "plain") == list(range(103))
    assert worker.seen(1, "stream") == list(range(20))


def test_accelerates_loader_is_reported_with_a_hint_and_an_unused_loader_is_not_reported(
    make: Callable[[str], Worker],
) -> None:
    worker = make("""
class Shard(torch.utils.data.BatchSampler):
    __module__ = "accelerate.data_loader"
data = Numbers()
unused = DataLoader(data, batch_size=4, shuffle=True)
train(DataLoader(data, batch_sampler=Shard(torch.utils.data.SequentialSampler(data), 4, False)))
""")
    reported = worker.run(OUTRIDER_KEEP_GLOBAL_BATCH="2")
    assert words(reported) == ["not kept", "not elastic"], reported
    assert all("split_batches=True" in line["sentence"] for line in reported)


def test_two_equal_samplers_keep_their_own_positions(make: Callable[[str], Worker]) -> None:
    worker = make("""
load(); (_, one), (_, two) = loader(), loader()
train(first := iter(one), 5 if FIRST else None, name="one")
train(second := iter(two), 3 if FIRST else None, name="two")
save()
""")
    worker.run()
    reported = worker.run()
    assert [line["detail"]["done"] for line in reported] == [20, 12]
    assert (len(worker.seen(2, "one")), len(worker.seen(2, "two"))) == (83, 91)


def test_without_the_flag_no_file_is_written_and_repeated_samples_are_reported(make: Callable[[str], Worker]) -> None:
    worker = make(SHORT)
    worker.run(OUTRIDER_ELASTIC_DATA="0")
    reported = worker.run(OUTRIDER_ELASTIC_DATA="0")
    assert words(reported) == ["repeated"]
    assert reported[0]["detail"] == {"epoch": 0, "samples": 20}
    assert len(worker.seen(2)) == 103
    assert not [name for name in os.listdir(worker.folder) if name.startswith(".")]


@pytest.mark.parametrize(("skipped", "again"), witnesses([(5, []), (4, [4]), (2, [20])], (4, [4])))
def test_samples_that_a_script_skips_itself_do_not_count_as_repeated(
    make: Callable[[str], Worker], skipped: int, again: list[int]
) -> None:
    """The script takes their batches without a step; samples of a batch that it cannot cut are repeated."""
    worker = make(f"""
load(); _, batches = loader()
reading = iter(batches)
for _ in range(0 if FIRST else {skipped}):
    next(reading)
train(reading, 5)
save()
""")
    worker.run(OUTRIDER_ELASTIC_DATA="0")
    reported = worker.run(OUTRIDER_ELASTIC_DATA="0")
    assert [line["detail"]["samples"] for line in reported] == again


def test_a_script_that_adapts_its_own_batch_size_is_reported(make: Callable[[str], Worker]) -> None:
    worker = make("""
load()
data = Numbers()
batches = DataLoader(data, batch_size=4 if FIRST else 5, sampler=DistributedSampler(data, 1, 0))
train(reading := iter(batches), 5 if FIRST else None); save()
""")
    assert worker.run(OUTRIDER_KEEP_GLOBAL_BATCH="1") == []
    reported = worker.run(OUTRIDER_KEEP_GLOBAL_BATCH="1")
    assert words(reported) == ["loaded", "not kept"]
    assert "the script's batch size is 5, but was 4" in reported[1]["sentence"]
    assert reported[1]["warning"]


def test_a_script_may_import_the_sampler_that_keeps_its_own_position(make: Callable[[str], Worker]) -> None:
    worker = make("""
from training_hooks import ElasticSampler
sampler = ElasticSampler(Numbers(), 1, 0)
train(reading := iter(DataLoader(Numbers(), batch_size=4, sampler=sampler)), 5)
print(json.dumps(["consumed", [sampler.state_dict()["consumed"]]]), file=SEEN)
""")
    worker.run(OUTRIDER_ELASTIC_DATA="0")
    assert worker.seen(1, "consumed") == [20]


def test_a_users_own_training_hooks_stays_theirs(make: Callable[[str], Worker], tmp_path: Path) -> None:
    (tmp_path / "training_hooks.py").write_text("MINE = 7\n")
    worker = make('import training_hooks\nprint(json.dumps(["mine", [training_hooks.MINE]]), file=SEEN)\n')
    worker.run()
    assert worker.seen(1, "mine") == [7]
