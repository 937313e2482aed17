"""The real reader of the ranks' output; its owner is a process whose stdout and stderr are read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]

STAGE = """
import os, signal, sys, time
sys.path.insert(0, sys.argv[1])
from training_hooks.logs.capture import Outlet
outlet = Outlet()

def rank(number, code, generation=(1, 1)):
    out, err = outlet.open(generation, number)
    pid = os.fork()
    if pid == 0:
        os.dup2(out, 1); os.dup2(err, 2)
        try: exec(code)
        finally: os._exit(0)
    os.close(out); os.close(err)
    return pid
"""


def act(script: str, tmp_path: Path, python: str = sys.executable, **variables: str) -> tuple[bytes, bytes]:
    environ = {"PATH": "/usr/bin:/bin", **variables}
    done = subprocess.run(
        [python, "-c", STAGE + script, str(ROOT)],
        env=environ,
        cwd=tmp_path,
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_lines_are_prefixed_by_rank_and_kept_in_files_unchanged(tmp_path: Path) -> None:
    out, err = act(
        """
for number in (0, 3):
    os.waitpid(rank(number, f"os.write(1, b'one {number}\\\\ntwo\\\\n'); os.write(2, b'bad\\\\xff')", (1, 5)), 0)
outlet.finish(60)
""",
        tmp_path,
        OUTRIDER_PREFIX="1",
        OUTRIDER_LOG_DIR="logs",
    )
    assert sorted(out.splitlines()) == [b"[0]: one 0", b"[0]: two", b"[3]: one 3", b"[3]: two"]
    assert sorted(err.splitlines()) == [b"[0]: bad\xff", b"[3]: bad\xff"]
    assert (tmp_path / "logs/5/3/stdout.log").read_bytes() == b"one 3\ntwo\n"
    assert (tmp_path / "logs/5/0/stderr.log").read_bytes() == b"bad\xff"


def test_nothing_that_a_killed_rank_wrote_is_lost(tmp_path: Path) -> None:
    script = """
write = "[os.write(1, b'line %06d' % i + b'\\\\n') for i in range(20000)]; os.write(1, b'half')"
os.waitpid(rank(0, write + "; os.kill(os.getpid(), 9)"), 0)
outlet.finish(60)
"""
    out, _ = act(script, tmp_path, OUTRIDER_PREFIX="1")
    lines = out.splitlines()
    assert lines == [b"[0]: line %06d" % i for i in range(20000)] + [b"[0]: half"]


def test_a_rank_outlives_its_reader_and_loses_nothing(tmp_path: Path) -> None:
    script = """
go, ready = os.pipe(), os.pipe()
pid = rank(0, "os.write(1, b'a\\\\n'); os.read(go[0], 1); [os.write(1, b'x' * 99 + b'\\\\n') for _ in range(5000)]")
os.kill(outlet.pid, signal.SIGSTOP)
reader = outlet.pid
os.kill(reader, signal.SIGKILL)
os.waitid(os.P_PID, reader, os.WEXITED | os.WNOWAIT)
os.write(go[1], b'.')
outlet.tend()
assert outlet.pid not in (0, reader)
assert os.waitpid(pid, 0)[1] == 0
outlet.finish(60)
"""
    out, _ = act(script, tmp_path, OUTRIDER_PREFIX="1")
    assert out.count(b"x" * 99 + b"\n") == 5000


def test_a_rank_outlives_every_reader_and_its_owner_passes_on_its_output(tmp_path: Path) -> None:
    """Each reader is killed as soon as it is there, before it can have read anything: no byte is lost."""
    script = """
pid = rank(0, "[os.write(1, b'%06d' % i + b'x' * 93 + b'\\\\n') for i in range(20000)]")
killed = []
while not os.waitpid(pid, os.WNOHANG)[0]:
    if outlet.pid and outlet.pid not in killed:
        killed.append(outlet.pid)
        os.kill(outlet.pid, signal.SIGKILL)
        os.waitid(os.P_PID, outlet.pid, os.WEXITED | os.WNOWAIT)
    outlet.tend()
    time.sleep(outlet.pause or 0)
assert len(killed) == 5, killed
outlet.finish()
"""
    out, _ = act(script, tmp_path, OUTRIDER_LOG_DIR="logs")
    assert out == b"".join(b"%06d" % i + b"x" * 93 + b"\n" for i in range(20000))


def test_a_reader_killed_while_it_reads_loses_no_more_than_it_held(tmp_path: Path) -> None:
    script = """
pid = rank(0, "[os.write(1, b'%06d' % i + b'x' * 93 + b'\\\\n') for i in range(50000)]")
while not os.path.exists('logs/1/0/stdout.log'): time.sleep(0.001)
os.kill(outlet.pid, signal.SIGKILL)
while not os.waitpid(pid, os.WNOHANG)[0]:
    outlet.tend()
outlet.finish(60)
"""
    out, _ = act(script, tmp_path, OUTRIDER_LOG_DIR="logs")
    assert 100 * 50000 - len(out) <= 1 << 16


def test_the_reader_outlives_signals_and_its_owner_until_its_inputs_end(tmp_path: Path) -> None:
    script = """
go = os.pipe()
pid = rank(0, "os.read(go[0], 1); os.write(1, b'last words')")
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): os.kill(outlet.pid, number)
os.write(go[1], b'.')
os._exit(0)
"""
    out, _ = act(script, tmp_path, OUTRIDER_PREFIX="1")
    assert out == b"[0]: last words"


def test_progress_bars_and_unfinished_lines_are_shown_and_the_next_rank_begins_a_line(tmp_path: Path) -> None:
    """Each step of the stage waits until the test has seen on the screen what was written before."""
    script = """
def wait(name):
    while not os.path.exists(name): time.sleep(0.01)
bar = rank(0, "os.write(1, b'10%\\\\r20%\\\\r'); wait('bars'); os.write(1, b'30%'); wait('half')")
os.waitpid(bar, 0)
outlet.forget()
os.waitpid(rank(1, "os.write(1, b'hello\\\\r\\\\n')"), 0)
outlet.finish(60)
"""
    stage = [sys.executable, "-c", STAGE + script, str(ROOT)]
    with subprocess.Popen(stage, env={"OUTRIDER_PREFIX": "1"}, cwd=tmp_path, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        screen = running.stdout.read(len(b"[0]: 10%\r"))
        (tmp_path / "bars").touch()
        while not screen.endswith(b"30%"):
            screen += running.stdout.read(1) or pytest.fail(f"the screen ended with {screen!r}")
        (tmp_path / "half").touch()
        screen += running.stdout.read()
    assert screen == b"[0]: 10%\r[0]: 20%\r[0]: 30%\n[1]: hello\r\n"
    assert running.returncode == 0


def test_a_line_without_an_end_is_passed_on_in_pieces(tmp_path: Path) -> None:
    script = """
os.waitpid(rank(0, "os.write(1, b'z' * 300000)"), 0)
outlet.finish(60)
"""
    out, _ = act(script, tmp_path, OUTRIDER_PREFIX="1")
    assert out == b"[0]: " + b"z" * 300000


def test_an_unwritable_folder_costs_only_the_files(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    out, err = act(
        "os.waitpid(rank(0, \"os.write(1, b'on')\"), 0); outlet.finish(60)", tmp_path, OUTRIDER_LOG_DIR="file/logs"
    )
    assert out == b"on"
    assert b"no log files" in err


def test_without_a_request_there_is_no_reader(tmp_path: Path) -> None:
    out, _ = act("print(outlet.open((1, 1), 0), outlet.pid)", tmp_path)
    assert out == b"None 0\n"


def test_the_last_lines_of_a_rank_are_known_if_they_are_in_files(tmp_path: Path) -> None:
    script = """
code = "os.write(1, b'out'); os.write(2, b'first\\\\n' + b'more\\\\n' * 20 + b'disk on fire\\\\n\\\\n')"
outlet._patience = 60.0
for number in (0, 1):
    os.waitpid(rank(number, code), 0)
    assert outlet.last_lines(number).splitlines() == ["more"] * 14 + ["disk on fire"]
assert outlet.last_lines(7) == ""
outlet.finish(60)
"""
    out, _ = act(script, tmp_path, OUTRIDER_LOG_DIR="logs", OUTRIDER_LOG_KEEP="1")
    assert out == b"outout"
    assert [path.name for path in sorted((tmp_path / "logs/1/1").iterdir())] == [
        "stderr.log", "stderr.times", "stdout.log", "stdout.times",
    ]  # fmt: skip


def test_without_files_there_are_no_last_lines(tmp_path: Path) -> None:
    act(
        'os.waitpid(rank(0, "os.write(2, b\'bad\')"), 0); assert outlet.last_lines(0) == ""',
        tmp_path,
        OUTRIDER_PREFIX="1",
    )
