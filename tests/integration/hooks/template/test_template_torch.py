"""The template with torch: a training script must not notice it."""

from __future__ import annotations

import functools
import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from outrider.runtime.ports import find_port
from tests.integration.hooks.agent import PATIENCE, Trainer, is_alive, wait_until
from tests.integration.hooks.template.fixtures import DDP
from tests.tiers import witnesses
from tests.warm import Warm
from training_hooks.abi import progress_page

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("warm")]
Make = Callable[..., Trainer]


@pytest.fixture
def cold(tmp_path: Path) -> Iterator[Make]:
    """With imports of its own."""
    made: list[Trainer] = []

    def trainer(text: str, *arguments: str, **options: Any) -> Trainer:
        (tmp_path / "train.py").write_text(text)
        made.append(Trainer(tmp_path, "train.py", *arguments, **options))
        return made[-1]

    yield trainer
    for each in made:
        each.close()


@pytest.fixture
def make(cold: Make, warm: Warm) -> Make:
    return functools.partial(cold, warm=warm)


def ended_well(trainer: Trainer, nproc: int = 1) -> str:
    trainer.announced()
    trainer.start(nproc, find_port())
    for _ in range(nproc):
        exited = trainer.agent.expect("exited")
        assert exited["code"] == 0, trainer.read()
    trainer.stop()
    return trainer.read()


def test_ranks_and_generations_draw_different_random_numbers_count_steps_and_have_one_thread_each_as_under_torchrun(
    cold: Make,
) -> None:
    trainer = cold(DDP.replace("BODY", "time.sleep(0.005)"), OUTRIDER_NPROC="2")
    line = trainer.announced()
    assert line["rung"] == "T0"
    for generation in (1, 2):
        pids = trainer.start(2, find_port())
        wait_until(lambda: trainer.read().count("SEEN") == 2 * generation, "the first steps")  # noqa: B023
        wait_until(lambda: all(steps_of(trainer, rank, pids[rank]) > 2 for rank in (0, 1)), "counted steps")  # noqa: B023
        os.kill(pids[1], signal.SIGKILL)
        assert trainer.agent.expect(lambda line: line.get("pid") == pids[1])["signal"] == 9  # noqa: B023
        trainer.stop()
    rows = [line.split()[1:] for line in trainer.read().splitlines() if line.startswith("SEEN")]
    assert len({row[0] for row in rows}) == 4
    assert len({row[1] for row in rows}) == 4
    assert [row[2] for row in rows] == ["1"] * 4


def steps_of(trainer: Trainer, local_rank: int, pid: int) -> int:
    reading = progress_page.read(str(trainer.volume / "progress" / str(local_rank)), pid)
    return reading.step if reading is not None and reading.phase == progress_page.STEP else 0


def test_a_stop_reaches_ranks_in_a_collective_and_reports_their_place(make: Make) -> None:
    body = "if step == 3 and dist.get_rank() == 1:\n            import threading; threading.Event().wait()"
    trainer = make(DDP.replace("BODY", body))
    trainer.announced()
    pids = trainer.start(2, find_port())
    wait_until(lambda: steps_of(trainer, 0, pids[0]) >= 4 and steps_of(trainer, 1, pids[1]) >= 4, "the hang")
    wait_until(lambda: unfinished(trainer) != {}, "rank 0 in its collective")
    stuck = unfinished(trainer)
    assert stuck[0]["frame"].split(":")[0].endswith("train.py")
    trainer.agent.say(do="collect", order=9, what="stacks")
    rows = trainer.agent.expect(lambda line: line.get("order") == 9)["body"]["ranks"]
    assert all("train.py" in row["stack"] for row in rows)
    assert trainer.stop(grace=60)["killed"] == 0
    assert not any(map(is_alive, pids))


RUNNING = """
import threading
import torch.distributed as dist
from pathlib import Path

def deep(n):
    return n if n == 0 else deep(n - 1)

def run():
    while True:
        deep(30)

if __name__ == "__main__":
    dist.init_process_group("gloo")
    threading.Thread(target=run, name="busy", daemon=True).start()
    Path("runs").touch()
    run()
"""


def test_a_rank_with_running_threads_can_be_asked_for_its_stack_repeatedly(make: Make) -> None:
    """By a signal this would end in SIGSEGV sooner or later: it reads frames that another thread is changing."""
    trainer = make(RUNNING)
    trainer.announced()
    trainer.start(1, find_port())
    wait_until((trainer.folder / "runs").exists, "its threads")
    counted, until = 0, time.monotonic() + PATIENCE
    for order in itertools.count(100):
        trainer.agent.say(do="collect", order=order, what="stacks")
        (row,) = trainer.agent.expect(lambda line: line.get("order") == order)["body"]["ranks"]  # noqa: B023
        *others, main = row["stack"].split("\n\n")
        if others:  # else no thread of it had a turn in time
            counted += 1
            assert "in run" in others[-1]
            assert main.endswith("in <module>"), "the main thread is the last"
        if counted == 50:
            break
        assert time.monotonic() < until, f"only {counted} answers of {order - 99} were whole"
    assert "exited" not in [line.get("event") for line in trainer.agent.lines]


def unfinished(trainer: Trainer) -> dict[int, Any]:
    trainer.agent.say(do="collect", order=8, what="collectives")
    rows = trainer.agent.expect(lambda line: line.get("order") == 8)["body"]["ranks"]
    found = {row["rank"]: row.get("collective") for row in rows}
    return {rank: each for rank, each in found.items() if each and each["state"] != "completed"}


LOADER = """
import sys
import torch
from torch.utils.data import DataLoader, Dataset
class Numbers(Dataset):
    def __len__(self): return 8
    def __getitem__(self, index): return torch.tensor(index), " ".join(sys.argv[1:])
if __name__ == "__main__":
    loader = DataLoader(Numbers(), batch_size=2, num_workers=2, multiprocessing_context=sys.argv[1])
    total = 0
    for numbers, words in loader:
        total += int(numbers.sum())
        assert words[0] == sys.argv[1] + " a b", words
    print("TOTAL", total)
"""


@pytest.mark.parametrize("method", witnesses(["fork", "spawn", "forkserver"], "fork"))
def test_data_loader_workers_work_however_they_are_made(make: Make, cold: Make, method: str) -> None:
    begin = make if method == "fork" else cold
    assert "TOTAL 28" in ended_well(begin(LOADER, method, "a b"))


FULL_GRAPH = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout())
@torch.compile(fullgraph=True, backend="eager")
def evaluated(x):
    model.eval()
    return model(x)
print("TRAINING", evaluated(torch.ones(1, 2)).shape[0], model.training)
"""


def test_a_compiled_function_without_a_break_may_call_eval(make: Make) -> None:
    assert "TRAINING 1 False" in ended_well(make(FULL_GRAPH))


@pytest.mark.exhaustive
def test_torch_compile_works_in_a_worker(make: Make) -> None:
    text = "import torch\nf = torch.compile(lambda x: torch.relu(x) + 1)\nprint('SUM', f(torch.ones(8)).sum().item())\n"
    assert "SUM 16.0" in ended_well(make(text))


def test_a_script_s_own_package_named_like_an_installed_one_is_the_one_it_gets(tmp_path: Path, cold: Make) -> None:
    (tmp_path / "networkx").mkdir()
    (tmp_path / "networkx" / "__init__.py").write_text("WHO = 'mine'")
    (tmp_path / "selectors.py").write_text("WHO = 'my selectors'")
    output = ended_well(cold("import networkx\nimport selectors\nprint('WHO', networkx.WHO, selectors.WHO)\n"))
    assert "WHO mine my selectors" in output


@pytest.mark.exhaustive
def test_a_package_beside_the_script_that_torch_would_import_is_left_to_the_workers(tmp_path: Path, cold: Make) -> None:
    (tmp_path / "sympy").mkdir()
    (tmp_path / "sympy" / "__init__.py").write_text("WHO = 'mine'\n")
    trainer = cold("import torch\nimport sympy\nprint('WHO', sympy.WHO)\n")
    assert "torch._dynamo is imported by each worker process" in trainer.announced()["rung_reason"]
    trainer.start()
    trainer.agent.expect("exited")
    assert "WHO mine" in trainer.read()


@pytest.mark.exhaustive
def test_a_thread_count_that_the_script_sets_before_its_imports_counts(cold: Make) -> None:
    text = "import os\nos.environ['OMP_NUM_THREADS'] = '2'\nimport torch\nprint('THREADS', torch.get_num_threads())\n"
    assert ended_well(cold(text, OUTRIDER_NPROC="2"), 2).count("THREADS 2") == 2


def test_data_loader_workers_of_a_killed_rank_are_ended(make: Make) -> None:
    text = LOADER.replace("total += ", "print('BATCH', flush=True); __import__('threading').Event().wait(); total += ")
    trainer = make(text, "fork")
    trainer.announced()
    (pid,) = trainer.start()
    wait_until(lambda: "BATCH" in trainer.read(), "a batch")
    workers = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    assert len(workers) == 2
    os.kill(pid, signal.SIGKILL)
    trainer.agent.expect("exited")
    wait_until(lambda: not any(map(is_alive, workers)), "the end of the DataLoader workers")


BATCHES = """
import torch
from torch.utils.data import DataLoader, TensorDataset
loader = DataLoader(TensorDataset(torch.arange(20.0)), batch_size=2, num_workers=2)
weight = torch.nn.Parameter(torch.zeros(1))
OPTIMIZER
for data, in loader:
    pass
STEPS
"""


@pytest.mark.parametrize(
    ("optimizer", "last", "expected"),
    [
        ("", "", (10, progress_page.FROM_BATCHES)),
        (
            "opt = torch.optim.SGD([weight])",
            "weight.grad = torch.ones(1); opt.step()",
            (1, progress_page.FROM_OPTIMIZER),
        ),
        (
            "",
            "opt = torch.optim.SGD([weight])\nweight.grad = torch.ones(1); opt.step()",
            (1, progress_page.FROM_OPTIMIZER),
        ),
    ],
)
def test_delivered_batches_count_without_an_optimizer(
    make: Make, optimizer: str, last: str, expected: tuple[int, int]
) -> None:
    trainer = make(BATCHES.replace("OPTIMIZER", optimizer).replace("STEPS", last))
    trainer.announced()
    (pid,) = trainer.start()
    assert trainer.agent.expect("exited")["code"] == 0, trainer.read()
    reading = progress_page.read(str(trainer.volume / "progress" / "0"), pid)
    assert reading is not None
    assert (reading.step, reading.phase, reading.source) == (expected[0], progress_page.STEP, expected[1])
