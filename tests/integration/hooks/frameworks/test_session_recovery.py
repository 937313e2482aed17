"""A session of real TensorFlow that has lost its parameter server, and whose close waits for it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from outrider.runtime.ports import find_port
from outrider.sidecar.shell.progress_pages import read_page
from tests.integration.hooks.agent import wait_until
from training_hooks.abi import progress_page
from training_hooks.frameworks import tf_session_recovery

SCRIPT = """
import os, signal, subprocess, sys, time
import tensorflow.compat.v1 as tf
from tensorflow.python.training import monitored_session
from training_hooks.frameworks import tf_session_recovery

PS = '''
import sys
import tensorflow.compat.v1 as tf
server = tf.train.Server(tf.train.ClusterSpec({"ps": ["127.0.0.1:0"]}), job_name="ps", task_index=0)
print(server.target, flush=True)
server.join()
'''
tf_session_recovery.let_go(lambda: True, monitored_session)
tf.disable_eager_execution()
ps = subprocess.Popen([sys.executable, "-c", PS], stdout=subprocess.PIPE, text=True)
try:
    address = ps.stdout.readline().strip().removeprefix("grpc://")
    cluster = tf.train.ClusterSpec({"ps": [address], "worker": ["127.0.0.1:0"]})
    server = tf.train.Server(cluster, job_name="worker", task_index=0)
    with tf.device("/job:ps/task:0"):
        step = tf.train.get_or_create_global_step()
        count = tf.assign_add(step, 1)
    closes = []

    class Creator(tf.train.ChiefSessionCreator):
        made = 0

        def create_session(self):
            Creator.made += 1
            os.kill(ps.pid, signal.SIGCONT)
            return super().create_session()

    class Loses(tf.train.SessionRunHook):
        def after_run(self, context, values):
            if Creator.made == 1:
                closes.append(context.session)
                os.kill(ps.pid, signal.SIGSTOP)
                raise tf.errors.UnavailableError(None, None, "the ps is away")

    with tf.train.MonitoredSession(Creator(master=server.target), hooks=[Loses()]) as session:
        session.run(count)
    print("sessions", Creator.made, "closed", closes[0]._closed, flush=True)
finally:
    ps.kill()
"""


@pytest.mark.tensorflow
def test_a_new_session_is_created_while_the_old_close_still_waits() -> None:
    """The ps is stopped until the next session is requested; otherwise the wait would never end."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=300, check=False)
    assert "sessions 2 closed True" in done.stdout, done.stderr[-3000:]


@contextmanager
def listening(port: int = 0) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", port)) as server:
        yield server.getsockname()[1]


class Session:
    """A session whose close waits until the test ends it."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        vars(self)["close"] = self.close  # as `let_go` leaves it

    def close(self) -> None:
        self.may_end.wait()


@pytest.fixture
def lose(watched: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Another session of this rank has lost a server, and is closed."""
    monkeypatch.setattr(tf_session_recovery, "CLOSE_WITHIN", 0.01)
    monkeypatch.setattr(tf_session_recovery, "PROBE_EVERY", 0.01)
    monkeypatch.setattr(tf_session_recovery, "STUCK_AFTER", 0.05)
    sessions: list[Session] = []

    def lost() -> Session:
        sessions.append(Session())
        tf_session_recovery._close(sessions[-1], watched)
        return sessions[-1]

    yield lost
    for session in sessions:
        session.may_end.set()
    wait_until(lambda: not watching(), "the end of who watches")


def watching() -> bool:
    return "outrider-watch" in [thread.name for thread in threading.enumerate()]


def is_stuck(watched: Any) -> bool:
    """The value as a sidecar reads it."""
    found = read_page(Path(watched.volume) / "progress" / "0")
    assert found is not None
    return found.is_stuck


def config(*servers: int, chief: int = 0) -> str:
    cluster = {"ps": [f"localhost:{port}" for port in servers]}
    return json.dumps({"cluster": cluster | ({"chief": [f"127.0.0.1:{chief}"]} if chief else {})})


def test_a_close_that_waits_although_all_servers_listen_is_reported_until_it_ends(
    watched: Any, lose: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listening() as one, listening() as two:
        monkeypatch.setenv("TF_CONFIG", config(one, chief=two))
        session = lose()
        wait_until(lambda: is_stuck(watched), "that it is stuck")
        session.may_end.set()
        wait_until(lambda: not is_stuck(watched), "that it can continue")


@pytest.mark.parametrize("lacks", ["ps", "chief"])
def test_a_close_that_waits_for_an_absent_server_is_not_stuck(
    watched: Any, lose: Any, monkeypatch: pytest.MonkeyPatch, lacks: str
) -> None:
    away, looks = find_port(), []
    listen = tf_session_recovery._all_listen

    def all_listen(servers: list[Any]) -> Any:
        looks.append(listen(servers))
        return looks[-1]

    monkeypatch.setattr(tf_session_recovery, "_all_listen", all_listen)
    with listening() as one:
        monkeypatch.setenv("TF_CONFIG", config(one, away) if lacks == "ps" else config(one, chief=away))
        lose()
        wait_until(lambda: len(looks) >= 20, "many looks")
        assert not is_stuck(watched)
        with listening(away):
            wait_until(lambda: is_stuck(watched), "that it is stuck")
        wait_until(lambda: not is_stuck(watched), "that it is away again")


def test_a_process_that_makes_steps_beside_the_close_is_not_stuck(
    watched: Any, lose: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listening() as one:
        monkeypatch.setenv("TF_CONFIG", config(one))
        lose()
        wait_until(lambda: is_stuck(watched), "that it is stuck")
        watched.page.set((progress_page.LAST, time.monotonic_ns()))
        wait_until(lambda: not is_stuck(watched), "that it trains")


def test_only_the_newest_close_is_reported(watched: Any, lose: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with listening() as one:
        monkeypatch.setenv("TF_CONFIG", config(one))
        older, newer = lose(), lose()
        wait_until(lambda: is_stuck(watched), "that it is stuck")
        older.may_end.set()
        newer.may_end.set()
        wait_until(lambda: not watching(), "the end of both")
        assert not is_stuck(watched)


@pytest.mark.parametrize("text", [None, "{}", "not json", '{"cluster": {"ps": ["nonsense"]}}', '{"cluster": 3}'])
def test_without_known_addresses_nothing_is_reported(
    watched: Any, lose: Any, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if text is not None:
        monkeypatch.setenv("TF_CONFIG", text)
    lose()
    wait_until(lambda: not watching(), "the end of who watches")
    assert not is_stuck(watched)
