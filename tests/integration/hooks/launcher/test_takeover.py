"""torchrun and its forms are replaced: the script sees the same as under torchrun."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.integration.hooks.container import Container, is_alive
from tests.tiers import witnesses

pytestmark = pytest.mark.slow

SCRIPT = """
import os, sys, time
import torch.distributed
seen = [os.environ["OUTRIDER_GENERATION"], os.environ["RANK"], __name__, *sys.argv[1:]]
os.write(1, ("|".join(seen) + "\\n").encode())  # in one piece, beside the other rank's
assert "OUTRIDER_TEMPLATE" not in os.environ and "OUTRIDER_INNER" not in os.environ
if "quick" not in sys.argv: time.sleep(600)
"""


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Container]:
    """A container without a sidecar."""
    made = Container(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "torch").mkdir()
    for name in ("__init__", "distributed"):  # what makes a script a trainer; where torchrun runs, it has its own torch
        (tmp_path / "torch" / f"{name}.py").touch()
    yield made
    made.close()


@pytest.fixture
def container(alone: Container) -> Container:
    alone.listen()
    return alone


def lines(container: Container, count: int) -> list[str]:
    def enough() -> list[str]:
        found = container.stdout().splitlines()
        return sorted(found) if len(found) >= count and container.stdout().endswith("\n") else []

    found: list[str] = container.until(enough)
    return found


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["torchrun", "--nproc-per-node=2"], id="flags known without torch"),
        pytest.param(["torchrun", "--nproc-per-node=auto"], id="torch counts, the import hook takes over"),
        pytest.param(["python", "-m", "torch.distributed.run", "--nproc_per_node", "2", "--standalone"], id="module"),
    ],
)
def test_torchruns_script_becomes_the_template_and_survives_a_crash(container: Container, command: list[str]) -> None:
    container.run(*command, "train.py", "--x", "a b")
    hello = container.said(what="template")
    assert (hello["rung"], hello["can_start"]) == ("T0", True)
    assert hello["nproc"] >= 1
    is_in_place = "--nproc-per-node=auto" not in command
    assert (hello["pid"] == container.pid) == is_in_place, "only where torchrun itself must run is there a watcher"
    pids = container.start(hello, 1, nproc=2)["pids"]
    assert lines(container, 2) == ["1.1|0|__main__|--x|a b", "1.1|1|__main__|--x|a b"]
    os.kill(pids[1], signal.SIGKILL)
    assert container.said(event="exited")["signal"] == signal.SIGKILL
    container.stop(hello, 1)
    assert not is_alive(pids[0])
    container.start(hello, 2, nproc=2)
    assert lines(container, 4)[2:] == ["1.2|0|__main__|--x|a b", "1.2|1|__main__|--x|a b"]
    container.order(hello, do="finish", code=0)
    assert container.ended() == 0


def test_rendezvous_flags_are_reported_once_and_restarts_are_passed_on(container: Container) -> None:
    container.run("torchrun", "--rdzv-backend=c10d", "--rdzv_id", "7", "--max-restarts=0", "train.py")
    assert container.said(what="template")["max_restarts"] == 0
    assert container.stderr().count("--rdzv-backend, --rdzv-id are not needed") == 1


def test_the_legacy_launch_fills_in_each_ranks_local_rank(container: Container) -> None:
    container.run("python", "-m", "torch.distributed.launch", "--nproc_per_node=2", "train.py", "--x")
    container.start(container.said(what="template"), 1, nproc=2)
    assert lines(container, 2) == ["1.1|0|__main__|--local-rank=0|--x", "1.1|1|__main__|--local-rank=1|--x"]


def test_a_bare_command_runs_once_per_local_rank(container: Container) -> None:
    container.run(
        "torchrun", "--nproc-per-node=2", "--no-python", "sh", "-c", 'echo "$RANK $1"; sleep 600', "sh", "a b"
    )
    hello = container.said(what="launcher")
    assert (hello["rung"], hello["nproc"], hello["can_start"]) == ("T1", 2, True)
    container.start(hello, 1, nproc=2)
    assert lines(container, 2) == ["0 a b", "1 a b"]


@pytest.mark.exhaustive
def test_run_path_is_left_to_torchrun_with_the_reason(container: Container) -> None:
    (container.folder / "plain.py").write_text("print('ran as a function', flush=True)")
    container.run("torchrun", "--nproc-per-node=1", "--run-path", str(container.folder / "plain.py"))
    assert container.said(what="launcher")["can_start"] is False
    assert container.ended() == 0
    assert "ran as a function" in container.stdout()
    assert "which runs without Outrider" in container.stderr()


def test_torchrun_inside_a_shell_becomes_a_template_beside_its_background(container: Container) -> None:
    container.run("bash", "-c", "sleep 600 & torchrun --nproc-per-node=1 train.py quick; echo code $?")
    launcher = container.said(what="launcher")
    assert (launcher["can_start"], launcher["pid"]) == (False, container.pid)
    template = container.said(what="template")
    assert template["pid"] != container.pid
    container.start(template, 1)
    assert container.said(event="exited")["code"] == 0
    container.order(template, do="finish", code=4)
    assert container.ended() == 0
    assert lines(container, 2) == ["1.1|0|__main__|quick", "code 4"]


def test_inside_a_shell_the_trainer_is_the_template_and_a_preparing_script_is_not(container: Container) -> None:
    (container.folder / "prepare.py").write_text("print('prepared', flush=True)")
    container.run("bash", "-c", "python prepare.py && exec python train.py 'a b'")
    template = container.said(what="template")
    container.start(template, 1)
    assert lines(container, 2) == ["1.1|0|__main__|a b", "prepared"]


@pytest.mark.skipif(find_spec("accelerate") is None, reason="accelerate is not installed")
def test_accelerate_launch_on_one_process_makes_its_script_the_template(container: Container) -> None:
    container.run("accelerate", "launch", "--cpu", "train.py", "--x")
    template = container.said(what="template")
    container.start(template, 1)
    assert lines(container, 1) == ["1.1|0|__main__|--x"]


THREADED = """
import threading, time
threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
"""


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        pytest.param(["python", "-u", "train.py", "a b"], [["a b"], ["a b"]], id="script"),
        pytest.param(["torchrun", "--nproc-per-node=2", "train.py", "a b"], [["a b"], ["a b"]], id="torchrun"),
        pytest.param(
            ["python", "-m", "torch.distributed.launch", "--nproc_per_node=2", "train.py"],
            [["--local-rank=0"], ["--local-rank=1"]],
            id="macros",
        ),
    ],
)
def test_a_process_that_cannot_be_forked_is_run_again_for_each_rank(
    container: Container, command: list[str], arguments: list[list[str]]
) -> None:
    """The user's sitecustomize starts a thread that stays, as tracers do."""
    mine = container.folder / "mine"
    mine.mkdir()
    (mine / "sitecustomize.py").write_text(THREADED)
    container.run(*command, PYTHONPATH=str(mine), OUTRIDER_NPROC="2")
    hello = container.said(what="launcher")
    assert (hello["rung"], hello["can_start"], hello["pid"]) == ("T1", True, container.pid)
    assert "cannot be forked" in hello["rung_reason"]
    assert "thread" in hello["rung_reason"]
    for number in (1, 2):
        pids = container.start(hello, number, nproc=2)["pids"]
        expected = ["|".join([f"1.{number}", str(rank), "__main__", *arguments[rank]]) for rank in (0, 1)]
        assert lines(container, 2 * number)[2 * number - 2 :] == expected
        os.kill(pids[0], signal.SIGKILL)
        assert container.said(event="exited")["signal"] == signal.SIGKILL
        container.stop(hello, number)
        assert not is_alive(pids[1])
    container.order(hello, do="finish", code=0)
    assert container.ended() == 0


WITHOUT_US = """
import os, sys
assert not {"OUTRIDER_DIR", "OUTRIDER_TEMPLATE", "OUTRIDER_INNER", "OUTRIDER_WORKER"} & set(os.environ)
seen = [os.environ["TORCHELASTIC_RUN_ID"], os.environ["RANK"], os.environ["WORLD_SIZE"], *sys.argv[1:]]
os.write(1, ("|".join(seen) + "\\n").encode())
"""


@pytest.mark.parametrize("threads", witnesses([False, True], False), ids=["from the template", "from the launcher"])
def test_without_a_sidecar_torchrun_itself_runs_as_without_outrider(alone: Container, threads: bool) -> None:
    mine = alone.folder / "mine"
    mine.mkdir()
    (mine / "sitecustomize.py").write_text(THREADED if threads else "")
    (alone.folder / "train.py").write_text(WITHOUT_US)
    command = ["torchrun", "--nproc-per-node=2", "--standalone", "--rdzv-id=mine", "train.py", "a b"]
    alone.run(*command, PYTHONPATH=str(mine), OUTRIDER_PATIENCE="0.5")
    assert alone.ended() == 0, alone.stderr()
    assert sorted(alone.stdout().splitlines())[0].endswith("|0|2|a b")
    assert sorted(alone.stdout().splitlines())[1].endswith("|1|2|a b")
    assert "no sidecar connected" in alone.stderr()
