"""A session of real TensorFlow that has lost its parameter server, and whose close waits for it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.hooks.agent import wait_until
from tests.hooks.fixtures import free_port
from training_hooks import page, session_recovery

SCRIPT = """
import os, signal, subprocess, sys, time
import tensorflow.compat.v1 as tf
from tensorflow.python.training import monitored_session
from training_hooks import session_recovery

PS = '''
import sys
import tensorflow.compat.v1 as tf
server = tf.train.Server(tf.train.ClusterSpec({"ps": ["127.0.0.1:0"]}), job_name="ps", task_index=0)
print(server.target, flush=True)
server.join()
'''
session_recovery.let_go(lambda: True, monitored_session)
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


def test_another_session_is_made_while_the_close_of_the_one_before_still_waits() -> None:
    """The ps is stopped until the next session is asked for: without that it would be waited for, for ever."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=300, check=False)
    assert "sessions 2 closed True" in done.stdout, done.stderr[-3000:]


@contextmanager
def listening() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def closing(watched: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A rank that makes steps, and a session of it whose close waits until `may_end` is set."""
    monkeypatch.setattr(session_recovery, "CLOSE_WITHIN", 0.01)
    monkeypatch.setattr(session_recovery, "PROBE_EVERY", 0.01)
    monkeypatch.setattr(session_recovery, "STUCK_AFTER", 0.05)
    watched.page.set_phase(page.STEP)

    class Session:
        may_end = threading.Event()

        def close(self) -> None:
            self.may_end.wait()

    made = Session()
    made.close = made.close  # type: ignore[method-assign]  # as `let_go` leaves it
    yield made
    made.may_end.set()


def test_a_close_that_waits_though_all_servers_listen_is_told_until_it_ends(
    watched: Any, closing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listening() as one, listening() as two:
        servers = [f"127.0.0.1:{one}", f"localhost:{two}"]
        monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {"ps": servers}}))
        session_recovery._close(closing, watched)
        wait_until(lambda: watched.phase() == page.STUCK, "that it is stuck")
        assert watched.phase_name() == "stuck"
        closing.may_end.set()
        wait_until(lambda: watched.phase() == page.STEP, "that it can go on")


def test_a_close_that_waits_for_a_server_that_is_not_there_is_not_stuck() -> None:
    over = threading.Event()
    with listening() as one:
        threading.Timer(0.5, over.set).start()
        assert not session_recovery._outlasts(over, [("127.0.0.1", one), ("127.0.0.1", free_port())])


def test_a_step_says_that_it_goes_on(watched: Any) -> None:
    watched.page.set_phase(page.STEP)
    watched.stuck(True)
    assert watched.phase() == page.STUCK
    watched.stepped(1)
    assert watched.phase() == page.STEP
    watched.stuck(False)
    assert watched.phase() == page.STEP


@pytest.mark.parametrize("config", [None, "{}", "not json", '{"cluster": {"ps": ["nonsense"]}}'])
def test_without_known_addresses_nothing_is_told(
    watched: Any, closing: Any, monkeypatch: pytest.MonkeyPatch, config: str | None
) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if config is not None:
        monkeypatch.setenv("TF_CONFIG", config)
    over = threading.Event()
    session_recovery._watch(watched, over)
    assert watched.phase() == page.STEP
