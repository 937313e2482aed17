"""Python ranks below a program that is not Python: counted, asked for their stacks, and allowed to finish a save."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outrider.runtime.ports import find_port
from tests.integration.hooks.container import Container, is_alive
from training_hooks.abi import progress_page
from training_hooks.rank import known_checkpoints

pytestmark = pytest.mark.slow
ORDERS = itertools.count(1)

PROGRAM = f"""#!/bin/sh
echo started
"${{OWN:-{sys.executable}}}" "$@"
"""
"""Its text names no Python, so it is restarted each generation; the shell stays above its rank."""
COUNTING = """
import os, sys
import torch, torch.distributed as dist
import torch._dynamo  # as init_process_group does: here once for both
os.environ["RANK"] = os.environ["LOCAL_RANK"] = "0" if os.fork() else "1"
dist.init_process_group("gloo")
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
dist.all_reduce(torch.ones(3))
print("counted", flush=True)
if dist.get_rank() == 1:
    sys.stdin.read()
dist.all_reduce(torch.ones(7))
if dist.get_rank() == 0:
    assert os.wait()[1] == 0
"""
"""A launcher of ranks, as DeepSpeed's is one: both have the torch that it has imported."""
SAVING = """
import os, time
import torch
torch.load("last.pt")
class Slow:
    def __reduce__(self):
        print("saving", flush=True)
        while not os.path.exists("go"):
            time.sleep(0.01)
        return (int, ())
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
optimizer.step()
torch.save({"model": model.state_dict(), "slow": Slow()}, "checkpoint.pt")
time.sleep(600)
"""


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Container]:
    made = Container(tmp_path)
    (tmp_path / "program").write_text(PROGRAM)
    (tmp_path / "program").chmod(0o755)
    made.listen()
    yield made
    made.close()


def asked(container: Container, hello: dict[str, Any], what: str, order: int) -> list[dict[str, Any]]:
    container.order(hello, do="collect", order=order, what=what)
    rows: list[dict[str, Any]] = container.said(event="collected", order=order)["body"]["ranks"]
    return rows


def stopped_there(rows: list[dict[str, Any]], waiting: str) -> list[dict[str, Any]] | None:
    """The rows, once rank 0 is in its collective and rank 1 waits."""
    return rows if "all_reduce" in rows[0]["stack"] and waiting in rows[1]["stack"] else None


def test_ranks_below_a_program_are_counted_and_report_their_stacks(container: Container) -> None:
    (container.folder / "train.py").write_text(COUNTING)
    reading, writing = os.pipe()
    container.run(str(container.folder / "program"), "train.py", stdin=reading)
    hello = container.said(what="launcher")
    started = container.start(hello, 1, nproc=2, WORLD_SIZE="2", MASTER_PORT=str(find_port()))
    container.until(lambda: container.stdout().count("counted") == 2)
    for rank in (0, 1):
        shown = progress_page.read(str(container.volume / "progress" / str(rank)))
        assert (shown.step, shown.phase, shown.generation) == (5, progress_page.STEP, [1, 1])
        assert shown.pid not in started["pids"], "the rank is a process below the shell"
    waiting = f'train.py", line {COUNTING.splitlines().index("    sys.stdin.read()") + 1}'
    rows = container.until(lambda: stopped_there(asked(container, hello, "stacks", next(ORDERS)), waiting))
    assert [(row["rank"], row["step"], row["phase"]) for row in rows] == [(0, 5, "step"), (1, 5, "step")]
    rows = asked(container, hello, "collectives", next(ORDERS))
    seqs = [row["collective"]["seq"] for row in rows]
    assert seqs[0] == seqs[1] + 1
    assert [row["collective"]["state"] == "completed" for row in rows] == [False, True]
    os.close(writing)
    os.close(reading)
    assert container.said(event="exited")["code"] == 0


def test_a_program_that_is_not_python_reports_that_it_has_no_stack(container: Container) -> None:
    container.run(str(container.folder / "program"), "600", OWN="sleep")
    hello = container.said(what="launcher")
    pid = container.start(hello, 1)["pids"][0]
    for order, what in enumerate(("stacks", "collectives")):
        (row,) = asked(container, hello, what, order)
        assert (row["rank"], row["local_rank"], row["pid"], "stack" in row) == (0, 0, pid, False)
        assert "not a Python with the hooks" in row["error"]


@pytest.mark.exhaustive
def test_a_rank_below_a_program_knows_earlier_saves_and_may_finish_its_own(container: Container) -> None:
    import torch

    torch.save(torch.ones(2), container.folder / "last.pt")
    (container.folder / "train.py").write_text(SAVING)
    container.run(str(container.folder / "program"), "train.py")
    hello = container.said(what="launcher")
    shell = container.start(hello, 1, prints=[[known_checkpoints.fingerprint(str(container.folder / "last.pt")), 103]])[
        "pids"
    ][0]
    container.until(lambda: "saving" in container.stdout())
    container.order(hello, do="stop", generation=[1, 1], grace=60, handler_grace=60, save_grace=600)
    (row,) = asked(container, hello, "collectives", 1)  # answered after the stop was begun
    assert is_alive(row["pid"])
    assert is_alive(shell)
    assert row["phase"] == "checkpoint"
    assert not (container.folder / "checkpoint.pt").exists()
    (container.folder / "go").touch()
    assert container.said(event="stopped")["killed"] == 0
    assert not is_alive(row["pid"])
    assert torch.load(container.folder / "checkpoint.pt", weights_only=False)["slow"] == 0
    shown = progress_page.read(str(container.volume / "progress" / "0"))
    assert (shown.base, shown.step) == (103, 104)
