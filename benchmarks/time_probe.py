"""A script that waits for data, saves, evaluates, loads, and writes down how long it did each: its own time account."""

import json
import os
import sys
import time
from pathlib import Path

BEGAN = time.time()
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

FOLDER, STEPS = Path(sys.argv[1]), int(sys.argv[2])
RANK, RESTART = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
torch.set_num_threads(1)
trace = (FOLDER / f"trace-{RANK}-{os.getpid()}.jsonl").open("a", buffering=1)


def begins(cause, since):
    row = {"cause": cause, "rank": RANK, "restart": RESTART, "since": since, "until": None}
    trace.write(json.dumps(row) + "\n")


def did(cause, since, **more):
    row = {"cause": cause, "rank": RANK, "restart": RESTART, "since": since, "until": time.time(), **more}
    trace.write(json.dumps(row) + "\n")


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 1 << 20

    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.randn(64)


def load(model):
    path = FOLDER / "model.pt"
    if not path.exists():
        return 0
    since = time.time()
    saved = torch.load(path)
    did("loading", since)
    model.load_state_dict(saved["model"])
    return saved["step"]


def evaluate(model):
    since = time.time()
    begins("evaluation", since)
    model.eval()
    with torch.no_grad():
        for _ in range(10):
            time.sleep(0.05)
            model(torch.zeros(1, 64))
    model.train()
    did("evaluation", since)


def main():
    did("importing", BEGAN)
    since = time.time()
    dist.init_process_group("gloo")
    did("rendezvous", since)
    built = time.time()
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    first = True
    loading = time.time()
    step = load(model)
    built += time.time() - loading
    batches = iter(torch.utils.data.DataLoader(Numbers(), batch_size=8))
    while step < STEPS:
        since = time.time()
        batch = next(batches)
        waited = time.time() - since
        if not first:
            did("data_wait", since)
        time.sleep(0.03)
        model(batch).square().mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        step += 1
        did("first_step" if first else "step", built if first else since, step=step, waited=0 if first else waited)
        first = False
        if step % 20 == 0 and RANK == 0:
            since = time.time()
            begins("checkpoint_stall", since)
            torch.save({"model": model.state_dict(), "step": step}, FOLDER / "model.pt")
            did("checkpoint_stall", since)
        if step % 50 == 0:
            evaluate(model)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
