"""Commands that are not Python scripts: the launcher restarts them in place in each generation."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.hooks.container import LAUNCH, Container, is_alive

OTHER_PYTHON = Path.home() / ".pyenv/versions/3.8.18/bin/python3"


PARENT = """#!/usr/bin/env python3
import os, subprocess, time
kids = [subprocess.Popen(["sleep", "600"], start_new_session=True).pid for _ in "12"]
print(*kids, "RANK" in os.environ, flush=True)
time.sleep(600)
"""


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Container]:
    made = Container(tmp_path)
    yield made
    made.close()


def script(container: Container, text: str, name: str = "trainer") -> str:
    path = container.folder / name
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def test_a_trainer_that_is_not_python_restarts_in_place_with_the_environment_of_each_generation(
    container: Container,
) -> None:
    container.listen()
    show = 'echo "$1|$OUTRIDER_GENERATION|$NODE_RANK|$NNODES|$MASTER_PORT|$RANK"'
    trainer = script(container, f"#!/bin/sh\n{show}\nexec sleep 600\n")
    container.run(trainer, "a  b'c\"$d")
    hello = container.said(what="launcher")
    assert (hello["rung"], hello["can_start"], hello["pid"], hello["running"]) == ("T1", True, container.pid, None)
    for number in (1, 2):
        started = container.start(hello, number)
        line = f"a  b'c\"$d|1.{number}|0|1|29400|0\n"
        container.until(lambda line=line: line in container.stdout())
        assert container.stop(hello, number, grace=60)["killed"] == 0
        assert not is_alive(started["pids"][0])
    container.order(hello, do="finish", code=5)
    assert container.ended() == 5


def test_a_crash_is_reported_with_its_code_or_signal_and_the_next_generation_follows(container: Container) -> None:
    container.listen()
    trainer = script(container, '#!/bin/sh\n[ "$OUTRIDER_GENERATION" = 1.1 ] && exit 7\nexec sleep 600\n')
    container.run(trainer)
    hello = container.said(what="launcher")
    container.start(hello, 1)
    exited = container.said(event="exited")
    assert (exited["code"], exited["signal"], exited["local_rank"]) == (7, None, 0)
    container.stop(hello, 1)
    started = container.start(hello, 2)
    os.kill(started["pids"][0], signal.SIGKILL)
    exited = container.said(event="exited")
    assert (exited["code"], exited["signal"], exited["out_of_memory"]) == (None, 9, False)
    container.stop(hello, 2)


def test_a_command_runs_once_per_local_rank_on_request(container: Container) -> None:
    container.listen()
    container.run(script(container, "#!/bin/sh\necho rank $RANK $LOCAL_RANK\n"), OUTRIDER_PER_RANK="1")
    hello = container.said(what="launcher")
    assert len(container.start(hello, 1, nproc=3)["pids"]) == 3
    codes = {container.said(event="exited", local_rank=rank)["code"] for rank in range(3)}
    assert codes == {0}
    assert sorted(container.stdout().split("\n")) == ["", "rank 0 0", "rank 1 1", "rank 2 2"]


def test_a_launcher_of_its_own_runs_once_per_member_and_its_ranks_end_with_it(container: Container) -> None:
    """As in DeepSpeed, one parent starts the ranks, each in its own session."""
    container.listen()
    script(container, PARENT, "deepspeed")
    container.run(str(container.folder / "deepspeed"), "train.py")
    hello = container.said(what="launcher")
    assert len(container.start(hello, 1, nproc=2)["pids"]) == 1
    kids = container.until(lambda: container.stdout().endswith("\n") and container.stdout()).split()
    assert kids.pop() == "False"
    assert container.stop(hello, 1, grace=60)["killed"] == 0
    assert [is_alive(int(kid)) for kid in kids] == [False, False]


EATER = "import os; eaten = os.environ['OUTRIDER_GENERATION'] == '1.1' and [b'x' * (1 << 20) for _ in range(4096)]"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "killed"),
    [(["python", "-c", EATER + "; os.kill(os.getpid(), 9)"], (None, 9)), (["./program"], (137, None))],
    ids=["itself", "below a shell"],
)
@pytest.mark.xdist_group("cgroup")
def test_a_command_killed_for_lack_of_memory_differs_from_one_killed_otherwise(
    container: Container, cgroup: Path, command: list[str], killed: tuple[int | None, int | None]
) -> None:
    container.listen()
    script(container, f'#!/bin/sh\n"{sys.executable}" -c "{EATER}"\ncode=$?\nexit $((code ? code : 137))\n', "program")
    container.run(*command, cgroup=cgroup)
    hello = container.said(what="launcher")
    for number in (1, 2):
        container.start(hello, number)
        exited = container.said(event="exited")
        assert (exited["code"], exited["signal"]) == killed
        assert exited["out_of_memory"] == (number == 1)
        container.stop(hello, number)
    container.order(hello, do="finish", code=137)
    assert container.ended() == 137


def test_the_containers_variables_have_precedence_over_defaults(container: Container) -> None:
    container.listen()
    container.run("sh", "-c", "echo $OMP_NUM_THREADS $MINE $RANK", MINE="7")
    hello = container.said(what="launcher")
    ranks = [{"local_rank": 0, "env": {"RANK": "0"}}]
    defaults = {"OMP_NUM_THREADS": "1", "MINE": "1", "RANK": "9"}
    container.order(hello, do="start", generation=[1, 1], ranks=ranks, env={}, defaults=defaults)
    container.said(event="exited")
    assert container.stdout() == "1 7 0\n"


def test_processes_left_by_a_killed_command_end_with_its_generation(container: Container) -> None:
    container.listen()
    container.run(script(container, "#!/bin/sh\nsleep 600 &\necho $!\nwait\n"))
    hello = container.said(what="launcher")
    for number in (1, 2):
        shell = container.start(hello, number)["pids"][0]
        below = int(container.until(lambda number=number: container.stdout().split()[number - 1 :])[0])
        os.kill(shell, signal.SIGKILL)
        assert container.said(event="exited")["signal"] == signal.SIGKILL
        assert is_alive(below)
        container.stop(hello, number)
        assert not is_alive(below)


def test_an_order_for_an_old_generation_is_refused_and_a_repeated_one_answered_again(container: Container) -> None:
    container.listen()
    container.run("sleep", "600")
    hello = container.said(what="launcher")
    first = container.start(hello, 3)
    assert container.start(hello, 3)["pids"] == first["pids"]
    container.order(hello, do="start", generation=[1, 2], ranks=[{"local_rank": 0, "env": {}}], env={})
    assert "has ended" in container.said(event="not_started", generation=[1, 2])["error"]
    container.order(hello, do="start", generation=[1, 4], ranks=[{"local_rank": 0, "env": {}}], env={})
    assert "are alive" in container.said(event="not_started", generation=[1, 4])["error"]
    assert container.stop(hello, 2)["killed"] == 0
    assert is_alive(first["pids"][0])


def test_sigterm_is_held_back_until_the_sidecar_sends_finish(container: Container) -> None:
    container.listen()
    container.run("sleep", "600")
    hello = container.said(what="launcher")
    pid = container.start(hello, 1)["pids"][0]
    container.signal(signal.SIGTERM)
    assert container.said(event="terminating")["reason"] == "SIGTERM"
    assert is_alive(pid)
    container.order(hello, do="finish", code=143)
    assert container.ended() == 143
    assert not is_alive(pid)


def test_a_command_that_does_not_exist_ends_with_127_and_its_name(container: Container) -> None:
    container.listen()
    container.run("/no/such/trainer")
    container.start(container.said(what="launcher"), 1)
    exited = container.said(event="exited")
    assert exited["code"] == 127
    assert exited["error"]["message"] == "/no/such/trainer: No such file or directory"
    assert "/no/such/trainer: No such file" in container.stderr()


def test_without_a_sidecar_the_command_runs_as_without_outrider_and_stderr_reports_it(container: Container) -> None:
    container.run("sh", "-c", 'echo "args: $0 $1"; exit 9', "x y", "z", OUTRIDER_PATIENCE="0.2")
    assert container.ended() == 9
    assert container.stdout() == "args: x y z\n"
    assert "no sidecar" in container.stderr()


def test_the_workers_die_with_a_killed_launcher(container: Container) -> None:
    container.listen()
    container.run("sleep", "600")
    pid = container.start(container.said(what="launcher"), 1)["pids"][0]
    container.signal(signal.SIGKILL)
    container.until(lambda: not is_alive(pid))


def test_a_shell_that_starts_a_trainer_runs_at_once_and_its_code_is_the_containers(container: Container) -> None:
    container.listen()
    script(container, "", "prepare.py")
    container.run("bash", "-c", "sleep 600 & echo bg $!; cd .; python3 prepare.py; exit 3")
    hello = container.said(what="launcher")
    assert hello["can_start"] is False
    assert container.said(event="command_ended")["code"] == 3
    assert container.ended() == 3
    background = int(container.stdout().split()[1])
    container.until(lambda: not is_alive(background))


def test_pythonpath_is_prepended_and_no_argument_is_changed(container: Container) -> None:
    container.listen()
    container.run("sh", "-c", 'echo "$PYTHONPATH"; printf "%s\\n" "$@"', "sh", "", "a b", "*", PYTHONPATH="/mine")
    container.start(container.said(what="launcher"), 1)
    container.said(event="exited")
    first, *others = container.stdout().split("\n")
    assert first.endswith("training_hooks/path:/mine")
    assert others == ["", "a b", "*", ""]


def test_outside_a_member_the_command_runs_as_without_the_launcher(container: Container) -> None:
    container.run("sh", "-c", "echo ${PYTHONPATH-none}; exit 4", OUTRIDER_DIR="", PYTHONPATH="/mine")
    assert container.ended() == 4
    assert container.stdout() == "/mine\n"


def bare_image(folder: Path) -> list[str]:
    """Prepares the start of a command inside an image that has only a shell."""
    root = folder / "root"
    needed = re.findall(r"(/\S+) \(0x", subprocess.run(["ldd", "/bin/sh"], capture_output=True, text=True).stdout)
    for path in ["/bin/sh", *needed]:
        (root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, root / path[1:])
    shutil.copy(LAUNCH, root / "outrider-launch")
    for each in ("volume", "hooks"):
        (root / each).mkdir()
    inside = ["unshare", "--map-root-user", "chroot"] if os.geteuid() else ["chroot"]
    return [*inside, str(root), "/bin/sh", "/outrider-launch"]


def test_in_an_image_without_python_the_command_runs_unchanged_and_one_line_reports_it(tmp_path: Path) -> None:
    launch = bare_image(tmp_path)
    environ = {"PATH": "/usr/bin:/bin:/sbin:/usr/sbin", "OUTRIDER_DIR": "/volume", "OUTRIDER_HOOKS": "/hooks"}
    for command in (["/bin/sh", "-c", 'echo "$1"; exit 6', "sh", "a  b"], ["python", "train.py"]):
        try:
            done = subprocess.run([*launch, *command], env=environ, capture_output=True, text=True, timeout=300)
        except FileNotFoundError as missing:
            pytest.skip(f"{missing.filename} is not here")
        if done.returncode == 125 or "Operation not permitted" in done.stderr:
            pytest.skip("chroot is not permitted on this machine")
        assert "no python3" in done.stderr
        if command[0] == "python":
            assert done.returncode == 127
        else:
            assert (done.returncode, done.stdout) == (6, "a  b\n")


@pytest.mark.skipif(not OTHER_PYTHON.exists(), reason="no Python 3.8 here")
def test_the_launcher_runs_on_python_3_8(tmp_path: Path) -> None:
    container = Container(tmp_path, python=str(OTHER_PYTHON))
    try:
        container.listen()
        container.run("sleep", "600")
        hello = container.said(what="launcher")
        assert "3.8" in os.readlink(f"/proc/{container.pid}/exe")
        pid = container.start(hello, 1)["pids"][0]
        container.stop(hello, 1)
        assert not is_alive(pid)
    finally:
        container.close()
