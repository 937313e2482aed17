"""kill -9 at each system call of a save, one after the other: the last valid version loads each time.

One process with torch imported forks a rank for each kill, as a template does. The rank loads, saves one step in peace,
and saves the next while strace counts its system calls and kills it at one of them, in whichever thread that is.
"""

from __future__ import annotations

import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.tiers import witnesses
from tests.warm import Warm
from training_hooks import HOOKS_PATH
from training_hooks.abi import arena

pytestmark = pytest.mark.slow

DRIVER = """
import json, os, signal, subprocess, sys
import torch
import torch.utils.data
from training_hooks import checkpoint

def state(step):
    return {"w": torch.full((50_000,), float(step)), "more": [torch.full((100,), float(step)) for _ in range(50)]}

def whole(found):
    if found is None:
        return -1
    tensors, step = [found[0]["w"], *found[0]["more"]], found[1]
    assert all((tensor == step).all() for tensor in tensors), found
    return step

def rank(path):
    os.setsid()
    torch.set_num_threads(1)
    in_memory, on_storage = whole(checkpoint.load()), whole(checkpoint.load("last.pt"))
    print(json.dumps([in_memory, on_storage]), flush=True)
    checkpoint.save(state(on_storage + 1), on_storage + 1, path="last.pt")
    checkpoint.wait()
    os.kill(os.getpid(), signal.SIGSTOP)
    checkpoint.save(state(on_storage + 2), on_storage + 2, path=path)
    checkpoint.wait()

def mine():
    return next(module for name, module in sys.modules.items() if name.endswith(".transparent_save")).here()

def read(load):
    found = load("last.pt") if os.path.exists("last.pt") else None
    return whole(found and (found, found["step"]))

def put(step):
    torch.save(dict(state(step), step=step), "last.pt")

def marking_rank(path):
    os.setsid()
    torch.set_num_threads(1)
    numbers = [copy.head.step for copy in mine().copies()]
    if numbers:  # what a master says of them
        os.environ["OUTRIDER_CHECKPOINT_FROM"] = "%d:1.1" % max(numbers)
    loaded, on_storage = read(torch.load), read(torch.load.__wrapped__)
    print(json.dumps([loaded, on_storage]), flush=True)
    put(loaded + 1)
    mine().settle()
    os.kill(os.getpid(), signal.SIGSTOP)
    put(loaded + 2)
    mine().settle()

def killed_at(call, path):
    pid = os.fork()
    if pid == 0:
        try:
            (marking_rank if "OUTRIDER_CHECKPOINT_PATH" in os.environ else rank)(path)
        finally:
            os._exit(0 if sys.exc_info()[0] is None else 1)
    os.waitpid(pid, os.WUNTRACED)
    what = "inject=all:signal=KILL:when=%d" % call
    tracer = subprocess.Popen(["strace", "-f", "-p", str(pid), "-e", what, "-o", "calls"], stderr=subprocess.PIPE)
    tracer.stderr.readline()  # it says that it has attached
    os.kill(pid, signal.SIGCONT)
    _, status = os.waitpid(pid, 0)
    tracer.communicate()
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else -os.WEXITSTATUS(status)

call, ended = 1, signal.SIGKILL
while ended == signal.SIGKILL:
    ended = killed_at(call, sys.argv[1] or None)
    call += int(sys.argv[2])
print(json.dumps(["ended", ended, call]), flush=True)
killed_at(1, None)
"""


# the next one is killed so many system calls further on
EVERY = pytest.mark.parametrize("every", witnesses([1, 7], 7))


def loads(warm: Warm, folder: Path, path: str, every: int, **more: str) -> list[Any]:
    """[from memory, from storage] at each start of a rank, the save before it killed some system calls further on."""
    arena.allot(arena.path_of(str(folder)), 4 << 20)
    (folder / "train.py").write_text(DRIVER)
    environment = {"OUTRIDER_DIR": str(folder), "OUTRIDER_HOOKS": HOOKS_PATH, "PYTHONPATH": HOOKS_PATH}
    environment |= {"OUTRIDER_CHECKPOINT_MEMORY": str(4 << 20), "OUTRIDER_GENERATION": "1.1", "RANK": "0", **more}
    done = warm.run(folder, path, str(every), **environment)
    assert done.returncode == 0, done.stderr
    said: list[Any] = [json.loads(line) for line in done.stdout.splitlines()]
    [(_, ended, call)] = [line for line in said if line[0] == "ended"]
    assert ended == 0, done.stderr
    assert call > 5, said
    return [line for line in said if line[0] != "ended"]


@pytest.mark.skipif(shutil.which("strace") is None, reason="no strace here")
@pytest.mark.xdist_group("warm")
@pytest.mark.parametrize("path", ["", "last.pt"])
@EVERY
def test_a_save_that_is_killed_at_any_of_its_system_calls_costs_that_save_at_most(
    warm: Warm, tmp_path: Path, path: str, every: int
) -> None:
    found = loads(warm, tmp_path, path, every)
    assert found[0] == [-1, -1]
    for (_, before), (in_memory, on_storage) in pairwise(found):
        assert before + 1 <= in_memory <= before + 2, "the save in peace is there, or the one that was killed"
        assert on_storage == in_memory


@pytest.mark.skipif(shutil.which("strace") is None, reason="no strace here")
@pytest.mark.xdist_group("torch")
@EVERY
def test_a_save_to_the_marked_path_that_is_killed_at_any_of_its_system_calls_costs_that_save_at_most(
    warm: Warm, tmp_path: Path, every: int
) -> None:
    found = loads(warm, tmp_path, "", every, OUTRIDER_CHECKPOINT_PATH="last.pt")
    assert found[0] == [-1, -1]
    for (before, _), (loaded, on_storage) in pairwise(found):
        assert before + 1 <= loaded <= before + 2, "the save in peace is there, or the one that was killed"
        assert before + 1 <= on_storage <= loaded, "storage is never newer than what is loaded"
