"""A real job whose ranks write down on which samples they have trained, and what that must come to.

The script's only randomness is its sampler's. Each rank appends a line after each step: the samples of its batch, and
the loss. Rank 0 saves every few steps. A test lets a step wait (`hold`), hurts the job, and lets it go on.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.lines import whole_lines
from tests.local.training import DEADLINE, Training, until

LENGTH, BATCH, EPOCHS, SAVE_EVERY = 203, 4, 2, 3
SCRIPT = '''
import json, os, sys, time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

torch.set_num_threads(1)
FOLDER = Path(sys.argv[1])
WISHES = json.loads((FOLDER / "wishes.json").read_text())


class Numbers(Dataset):
    def __len__(self):
        return WISHES["length"]

    def __getitem__(self, index):
        return index, torch.tensor([float(index % 17), 1.0])


def wait(rank, step):
    """Every rank stands still before this step until it may go on."""
    (FOLDER / f"reached-{rank}").write_text(str(step))
    while (FOLDER / "hold").exists() and step >= int((FOLDER / "hold").read_text() or 0):
        time.sleep(0.005)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    net = torch.nn.Linear(2, 1)
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    data = Numbers()
    sampler = DistributedSampler(data, shuffle=WISHES["shuffle"])
    loader = DataLoader(data, batch_size=WISHES["batch"], sampler=sampler, num_workers=WISHES["workers"])
    first, step, path = 0, 0, FOLDER / "model.pt"
    if path.exists() and (rank == 0 or not WISHES["rank_0_loads"]):
        saved = torch.load(path)
        net.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first, step = saved["epoch"], saved["step"]
    if WISHES["rank_0_loads"]:
        box = [(first, step, net.state_dict(), optimizer.state_dict())]
        dist.broadcast_object_list(box, src=0)
        first, step, weights, moments = box[0]
        net.load_state_dict(weights)
        optimizer.load_state_dict(moments)
    trace = (FOLDER / f"trace-{rank}-{os.getpid()}.jsonl").open("a", buffering=1)
    about = {"rank": rank, "world": world, "restart": int(os.environ["TORCHELASTIC_RESTART_COUNT"])}
    for epoch in range(first, WISHES["epochs"]):
        if WISHES["set_epoch"]:
            sampler.set_epoch(epoch)
        for indices, x in loader:
            wait(rank, step + 1)
            optimizer.zero_grad()
            loss = (model(x) - 1.0).square().mean()
            loss.backward()
            optimizer.step()
            step += 1
            trace.write(json.dumps({"step": step, "epoch": epoch, "samples": indices.tolist(), "loss": loss.item(),
                                    "length": len(loader), **about}) + "\\n")
            if rank == 0 and step % WISHES["every"] == 0:
                state = {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch, "step": step}
                torch.save(state, path)
                trace.write(json.dumps({"saved": step}) + "\\n")
    del model
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
'''


@dataclass(frozen=True, slots=True)
class Seen:
    """One line of a rank's trace."""

    step: int
    epoch: int
    samples: list[int]
    loss: float
    length: int
    rank: int
    world: int
    restart: int


class Run(Training):
    """A job of the script above, from its command to its end."""

    def __init__(self, folder: Path, *flags: str, script: str = SCRIPT, **wishes: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        defaults = {"length": LENGTH, "batch": BATCH, "epochs": EPOCHS, "every": SAVE_EVERY, "shuffle": True,
                    "workers": 0, "set_epoch": True, "rank_0_loads": False}  # fmt: skip
        (folder / "wishes.json").write_text(json.dumps(defaults | wishes))
        self.home = Path(tempfile.mkdtemp(prefix="or-"))
        super().__init__(folder, self.home, *flags, script=script)

    def close(self) -> None:
        super().close()
        shutil.rmtree(self.home)

    # -- what the test wants ------------------------------------------------------------------------------------------
    def hold_at(self, step: int) -> None:
        """All ranks stand still before this step, until `go`."""
        beside = self.folder / ".hold"
        beside.write_text(str(step))
        beside.rename(self.folder / "hold")

    def until_held(self, step: int, world: int) -> None:
        def all_there() -> bool:
            files = [self.folder / f"reached-{rank}" for rank in range(world)]
            return all(file.exists() and file.read_text() == str(step) for file in files)

        until(all_there, lambda: f"{world} ranks before step {step}: {self.story()}")

    def go(self) -> None:
        self.hold_at(1 << 60)  # a file that went would be missing to who is about to read it

    def finished(self) -> list[Seen]:
        """Lets the script come to its end; the steps that count, those that were lost with a checkpoint left out."""
        self.go()
        assert self.process.wait(DEADLINE) == 0, self.story()
        return self.surviving()

    # -- what was done ------------------------------------------------------------------------------------------------
    def lines(self) -> list[Seen]:
        found = []
        for path in sorted(self.folder.glob("trace-*.jsonl")):
            rows = (json.loads(line) for line in whole_lines(path))
            found += [Seen(**row) for row in rows if "step" in row]
        return found

    def surviving(self) -> list[Seen]:
        """A step that a later world has made again is gone with the model that went back."""
        lines = self.lines()
        last = {each.step: max(e.restart for e in lines if e.step == each.step) for each in lines}
        return sorted((e for e in lines if e.restart == last[e.step]), key=lambda e: (e.step, e.rank))


def times_seen(seen: list[Seen], epoch: int) -> Counter[int]:
    return Counter(sample for each in seen if each.epoch == epoch for sample in each.samples)


def assert_each_once(seen: list[Seen], epoch: int, length: int = LENGTH) -> None:
    """Every sample of the epoch, and no more of them twice than the sampler's padding needs."""
    counts = times_seen(seen, epoch)
    assert sorted(counts) == list(range(length)), sorted(set(range(length)) - set(counts))
    last_world = [each.world for each in seen if each.epoch == epoch][-1]
    assert counts.total() - length < last_world, {k: n for k, n in counts.items() if n > 1}
