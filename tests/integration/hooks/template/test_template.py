"""A template driven over a real agent.sock: its worker processes, their ends, and what they leave behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.hooks.agent import Trainer, is_alive, wait_until
from training_hooks import HOOKS_PATH

Make = Callable[..., Trainer]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Trainer] = []

    def trainer(*command: str, **options: str) -> Trainer:
        made.append(Trainer(tmp_path, *command, **options))  # type: ignore[arg-type]
        return made[-1]

    yield trainer
    for each in made:
        each.close()


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


IDENTITY = """
import json, os, sys, signal, time
import __main__
spec = __main__.__spec__
found = {
    "argv": sys.argv, "orig_argv": getattr(sys, "orig_argv", None), "name": __name__, "file": __main__.__file__,
    "path": sys.path, "spec": spec and spec.name, "package": __main__.__package__,
    "term": str(signal.getsignal(signal.SIGTERM)), "int": str(signal.getsignal(signal.SIGINT)),
    "child": str(signal.getsignal(signal.SIGCHLD)),
    "mask": sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, []))),
    "fds": len(os.listdir("/proc/self/fd")) if "RANK" not in os.environ else None,
    "cmdline": open("/proc/self/cmdline").read(),
    "ours": sorted(k for k in os.environ if k.startswith("OUTRIDER_TEMPLATE") or k == "OUTRIDER_INNER"),
}
json.dump(found, open(os.environ["RESULT"], "w"))
"""


def result_of(trainer: Trainer, result: Path) -> dict[str, object]:
    trainer.announced()
    trainer.start()
    assert trainer.agent.expect("exited")["code"] == 0, trainer.read()
    trainer.stop()
    return dict(json.loads(result.read_text()))


def test_a_sidecar_is_found_however_long_the_imports_took(tmp_path: Path, make: Make) -> None:
    write(tmp_path, "train.py", IDENTITY)
    result = tmp_path / "result.json"
    assert result_of(make("train.py", RESULT=str(result), OUTRIDER_PATIENCE="0"), result)["name"] == "__main__"


@pytest.mark.parametrize("command", [["train.py", "--x", "a b", "-m"], ["-u", "-m", "pkg.mod", "--b", "c d"], ["pkg"]])
def test_a_worker_process_runs_its_script_exactly_as_a_plain_python_does(
    tmp_path: Path, make: Make, command: list[str]
) -> None:
    for name in ("train.py", "pkg/mod.py", "pkg/__main__.py"):
        write(tmp_path, name, IDENTITY)
    write(tmp_path, "pkg/__init__.py", "")
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(
        [sys.executable, *command], cwd=tmp_path, check=True, env=plain | {"RESULT": str(tmp_path / "plain.json")}
    )
    expected = json.loads((tmp_path / "plain.json").read_text())
    found = result_of(make(*command, RESULT=str(tmp_path / "forked.json")), tmp_path / "forked.json")
    assert found | {"fds": None} == expected | {"fds": None}


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.10", "3.11", "3.12", "3.13"])
def test_every_python_from_3_8_runs_a_script_without_torch(tmp_path: Path, make: Make, version: str) -> None:
    pythons = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    if not pythons:
        pytest.skip(f"no Python {version} here")
    write(tmp_path, "train.py", IDENTITY)
    result = tmp_path / "result.json"
    found = result_of(make("train.py", "--a", python=str(pythons[0]), RESULT=str(result)), result)
    assert found["argv"] == ["train.py", "--a"]


@pytest.mark.parametrize("version", ["2.7", "3.6", "3.7"])
def test_older_pythons_pass_through_and_keep_their_own_sitecustomize(tmp_path: Path, version: str) -> None:
    pythons = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    if not pythons:
        pytest.skip(f"no Python {version} here")
    write(tmp_path, "other/sitecustomize.py", "import sys\nsys.from_user = 1\n")
    env = os.environ | {"PYTHONPATH": f"{HOOKS_PATH}:{tmp_path / 'other'}", "OUTRIDER_DIR": str(tmp_path)}
    env |= {"OUTRIDER_TEMPLATE": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    out = subprocess.run(
        [pythons[0], "-c", "import sys; print(sys.from_user)"], env=env, capture_output=True, text=True, check=True
    )
    assert (out.stdout, out.stderr) == ("1\n", "")


def test_an_unmarked_python_outside_a_member_is_untouched(tmp_path: Path) -> None:
    write(tmp_path, "x.py", "import sys; print([m for m in sys.modules if 'outrider' in m], sys.path[1:])")
    plain = subprocess.run([sys.executable, "x.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    env = os.environ | {"PYTHONPATH": HOOKS_PATH}
    hooked = subprocess.run([sys.executable, "x.py"], cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    assert hooked.stdout == plain.stdout


def test_the_user_s_own_sitecustomize_is_run_and_its_failure_reported_as_usual(tmp_path: Path, make: Make) -> None:
    write(tmp_path, "other/sitecustomize.py", "import builtins\nbuiltins.from_user = 7\nraise ValueError('theirs')\n")
    write(tmp_path, "train.py", "print('VALUE', from_user)")
    trainer = make("train.py", PYTHONPATH=f"{HOOKS_PATH}:{tmp_path / 'other'}")
    trainer.announced()
    trainer.start()
    assert trainer.agent.expect("exited")["code"] == 0
    assert "VALUE 7" in trainer.read()
    assert "ValueError: theirs" in trainer.read()


def test_the_mark_reaches_no_child_of_a_worker(tmp_path: Path, make: Make) -> None:
    write(
        tmp_path,
        "train.py",
        "import subprocess, sys\n"
        'LOOK = """import os, sys; print("CHILD", "_outrider_hooks.template.become" in sys.modules, '
        'os.environ.get("OUTRIDER_TEMPLATE"))"""\n'
        "print(subprocess.run([sys.executable, '-c', LOOK], capture_output=True, text=True).stdout)",
    )
    trainer = make("train.py")
    trainer.announced()
    trainer.start()
    assert trainer.agent.expect("exited")["code"] == 0
    assert "CHILD False None" in trainer.read()


ENDINGS = {
    "os.kill(os.getpid(), 9)": (None, 9),
    "os.kill(os.getpid(), 11)": (None, 11),
    "os.abort()": (None, 6),
    "sys.exit(1)": (1, None),
    "os._exit(77)": (77, None),
    "raise KeyError('k')": (1, None),
    "pass": (0, None),
}


@pytest.mark.parametrize(("statement", "end"), ENDINGS.items())
def test_the_end_of_a_worker_is_reported_and_the_next_generation_starts(
    tmp_path: Path, make: Make, statement: str, end: tuple[int | None, int | None]
) -> None:
    write(tmp_path, "train.py", f"import os, sys\ndef main():\n    {statement}\nmain()\n")
    trainer = make("train.py")
    trainer.announced()
    for _ in range(2):
        (pid,) = trainer.start()
        exited = trainer.agent.expect("exited")
        assert (exited["pid"], exited["code"], exited["signal"], exited["out_of_memory"]) == (pid, *end, False)
        if "KeyError" in statement:
            error = exited["error"]
            assert (error["type"], error["message"], error["in_import"]) == ("KeyError", "'k'", False)
            assert error["frame"].endswith("train.py:3 main")
        else:
            assert exited["error"] is None
        assert trainer.stop()["killed"] == 0
    assert trainer.finish(5) == 5


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        ("import nothing_of_that_name\n", "ModuleNotFoundError"),
        ("def broken(:\n", "SyntaxError"),
        ("x = 1 / 0\n", "ZeroDivisionError"),
    ],
)
def test_a_script_that_cannot_start_fails_in_import(tmp_path: Path, make: Make, script: str, kind: str) -> None:
    write(tmp_path, "train.py", script)
    trainer = make("train.py")
    trainer.announced()
    trainer.start()
    error = trainer.agent.expect("exited")["error"]
    assert (error["type"], error["in_import"]) == (kind, True)
    assert kind in trainer.read()


def test_an_exception_before_a_stop_is_reported_although_its_process_exits_slowly(tmp_path: Path, make: Make) -> None:
    """Its connections close during the exit: other ranks may fail because of that first, and a stop may come."""
    slow = "import atexit, time\natexit.register(lambda: (open('leaving', 'w').close(), time.sleep(600)))\n"
    write(tmp_path, "train.py", slow + "raise ArithmeticError('not finite')\n")
    trainer = make("train.py")
    trainer.announced()
    (pid,) = trainer.start()
    wait_until((tmp_path / "leaving").exists, "the exception")
    trainer.stop()
    exited = trainer.agent.expect("exited")
    assert (exited["pid"], exited["code"], exited["signal"]) == (pid, 1, None)
    assert (exited["error"]["type"], exited["error"]["message"]) == ("ArithmeticError", "not finite")


def test_a_script_whose_name_the_locale_cannot_spell_runs(tmp_path: Path, make: Make) -> None:
    write(tmp_path, "übung.py", "import os; print('rank', os.environ['RANK'])\n")
    trainer = make("übung.py", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    trainer.announced()
    trainer.start()
    assert trainer.agent.expect("exited")["code"] == 0, trainer.read()
    assert "rank 0" in trainer.read()


def test_a_script_that_does_not_exist_is_named(make: Make) -> None:
    trainer = make("missing.py")
    trainer.announced()
    trainer.start()
    exited = trainer.agent.expect("exited")
    assert exited["code"] == 2
    assert "missing.py" in exited["error"]["message"]


def test_a_bug_fixed_in_the_script_and_in_its_module_is_live_in_the_next_generation(tmp_path: Path, make: Make) -> None:
    write(tmp_path, "part.py", "VALUE = 'old part'")
    write(tmp_path, "train.py", "import json\nimport part\nprint('old script', part.VALUE)")
    trainer = make("train.py")
    trainer.announced()
    trainer.start()
    trainer.agent.expect("exited")
    trainer.stop()
    write(tmp_path, "part.py", "VALUE = 'a newer part'")
    write(tmp_path, "train.py", "import part\nprint('newer script', part.VALUE)")
    trainer.start()
    trainer.agent.expect("exited")
    assert "old script old part" in trainer.read()
    assert "newer script a newer part" in trainer.read()


def test_a_worker_that_handles_sigterm_gets_its_own_grace(tmp_path: Path, make: Make) -> None:
    write(
        tmp_path,
        "train.py",
        "import signal, sys\ndef bye(*_):\n    print('BYE', flush=True)\n    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, bye)\nprint('UP', flush=True)\nwhile True:\n    signal.pause()\n",
    )
    trainer = make("train.py")
    trainer.announced()
    trainer.start()
    wait_until(lambda: "UP" in trainer.read(), "the script")
    assert trainer.stop()["killed"] == 0
    assert "BYE" in trainer.read()


def test_a_worker_that_ignores_sigterm_is_killed(tmp_path: Path, make: Make) -> None:
    write(
        tmp_path,
        "train.py",
        "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('UP', flush=True)\n"
        "while True:\n    signal.pause()\n",
    )
    trainer = make("train.py")
    trainer.announced()
    (pid,) = trainer.start()
    wait_until(lambda: "UP" in trainer.read(), "the script")
    assert trainer.stop()["killed"] == 1
    assert not is_alive(pid)


def test_children_of_a_killed_worker_end_with_it(tmp_path: Path, make: Make) -> None:
    write(
        tmp_path,
        "train.py",
        "import os, signal\npid = os.fork()\nif pid:\n    print('GRANDCHILD', pid, '.', flush=True)\n"
        "while True:\n    signal.pause()\n",
    )
    trainer = make("train.py")
    trainer.announced()
    (pid,) = trainer.start()
    wait_until(lambda: " ." in trainer.read(), "the grandchild")
    grandchild = int(trainer.read().split()[1])
    os.kill(pid, signal.SIGKILL)
    trainer.agent.expect("exited")
    wait_until(lambda: not is_alive(grandchild), "the end of the grandchild")


def test_workers_die_with_their_template(tmp_path: Path, make: Make) -> None:
    write(tmp_path, "train.py", "import signal\nwhile True:\n    signal.pause()\n")
    trainer = make("train.py")
    trainer.announced()
    pids = trainer.start(3)
    trainer.process.kill()
    wait_until(lambda: not any(map(is_alive, pids)), "the end of the workers")


def test_old_and_repeated_orders_are_answered_and_not_obeyed(tmp_path: Path, make: Make) -> None:
    write(tmp_path, "train.py", "import signal\nwhile True:\n    signal.pause()\n")
    trainer = make("train.py")
    trainer.announced()
    trainer.number = 4
    pids = trainer.start()
    trainer.agent.say(do="start", generation=[1, 5], ranks=[{"local_rank": 0, "env": {}}], env={})
    assert trainer.agent.expect("started")["pids"] == pids
    for number in (3, 6):
        trainer.agent.say(do="start", generation=[1, number], ranks=[{"local_rank": 0, "env": {}}], env={})
        assert trainer.agent.expect("not_started")["generation"] == [1, number]
    trainer.agent.say(do="stop", generation=[1, 2])
    assert trainer.agent.expect("stopped")["generation"] == [1, 2]
    assert is_alive(pids[0])
    trainer.agent.say(do="stop", generation=[1, 6])
    trainer.agent.expect("stopped")
    assert not is_alive(pids[0])


def test_training_continues_without_a_sidecar_and_the_next_one_gets_the_whole_state(tmp_path: Path, make: Make) -> None:
    write(tmp_path, "train.py", "import signal\nwhile True:\n    signal.pause()\n")
    trainer = make("train.py")
    trainer.announced()
    first, second = trainer.start(2)
    away = trainer.agent.path.rename(trainer.volume / "away.sock")
    trainer.agent.hang_up()
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{first}").exists(), "the end of the first, and that its parent knows")
    away.rename(trainer.agent.path)
    line = trainer.announced()
    assert (line["running"], line["workers"]) == ([1, 1], [[1, second]])
    assert trainer.agent.expect("exited")["pid"] == first
    trainer.stop()


def test_sigterm_is_held_back_and_reported(tmp_path: Path, make: Make) -> None:
    write(tmp_path, "train.py", "import signal\nwhile True:\n    signal.pause()\n")
    trainer = make("train.py")
    trainer.announced()
    (pid,) = trainer.start()
    trainer.process.terminate()
    trainer.agent.expect("terminating")
    assert is_alive(pid)
    assert trainer.finish(0) == 0
    assert not is_alive(pid)


def test_a_second_process_in_the_same_container_is_not_a_template(tmp_path: Path, make: Make) -> None:
    write(tmp_path, "train.py", "print('RAN')")
    trainer = make("train.py")
    trainer.announced()
    env = {**os.environ, "OUTRIDER_DIR": str(trainer.volume), "OUTRIDER_TEMPLATE": "1", "PYTHONPATH": HOOKS_PATH}
    out = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, env=env, capture_output=True, text=True, check=True, timeout=300
    )
    assert out.stdout == "RAN\n"


def test_a_module_that_reads_its_rank_while_it_is_imported_is_imported_by_each_rank(tmp_path: Path, make: Make) -> None:
    site = tmp_path / "lib" / "site-packages"
    write(site, "flash/__init__.py", "from .ranks import RANK\n")
    write(site, "flash/ranks.py", "from os import environ\nRANK = environ.get('RANK', 'none')\n")
    write(site, "calm.py", "import os\nWHO = os.getpid()\n")
    write(
        tmp_path, "train.py", "import calm, flash, os\nprint('SAW', flash.RANK, calm.WHO != os.getpid(), flush=True)\n"
    )
    trainer = make("train.py", PYTHONPATH=f"{HOOKS_PATH}:{site}", OUTRIDER_NPROC="2", RANK="7")
    line = trainer.announced()
    assert line["rung"] == "T0"
    assert "flash is imported by each worker process: it reads RANK while it is imported" in line["rung_reason"]
    trainer.start(2)
    for _ in range(2):
        assert trainer.agent.expect("exited")["code"] == 0, trainer.read()
    trainer.stop()
    assert {line for line in trainer.read().splitlines() if "SAW" in line} == {"SAW 0 True", "SAW 1 True"}


def test_an_error_as_large_as_a_batch_is_reported_by_its_two_ends(tmp_path: Path, make: Make) -> None:
    deep = "def deep(n):\n    if n:\n        deep(n - 1)\n"
    text = deep + "    raise ValueError('BEGIN' + chr(233) * 100000 + 'END')\ndeep(50)\n"
    write(tmp_path, "train.py", text)
    trainer = make("train.py")
    trainer.announced()
    trainer.start()
    error = trainer.agent.expect("exited")["error"]
    for name in ("message", "traceback"):
        assert 4096 < len(error[name].encode()) <= 8192
        assert error[name].rstrip().endswith("END")
    assert error["message"].startswith("BEGIN")
    assert error["traceback"].startswith("Traceback")
    assert error["frame"].endswith("train.py:4 deep")


def test_an_exception_that_cannot_be_printed_is_named(tmp_path: Path, make: Make) -> None:
    text = "class Odd(Exception):\n    def __str__(self):\n        raise RuntimeError('no')\nraise Odd()\n"
    write(tmp_path, "train.py", text)
    trainer = make("train.py")
    trainer.announced()
    trainer.start()
    error = trainer.agent.expect("exited")["error"]
    assert (error["type"], error["message"]) == ("__main__.Odd", "<unprintable Odd object>")


def test_the_error_of_an_older_generation_is_not_reported_again(tmp_path: Path, make: Make) -> None:
    write(tmp_path, "train.py", "import os\nif os.environ['FAIL'] == '1':\n    raise KeyError('old')\nos._exit(3)\n")
    trainer = make("train.py")
    trainer.announced()
    trainer.start(FAIL="1")
    assert trainer.agent.expect("exited")["error"]["type"] == "KeyError"
    trainer.stop()
    trainer.start(FAIL="0")
    exited = trainer.agent.expect("exited")
    assert (exited["code"], exited["error"]) == (3, None)
