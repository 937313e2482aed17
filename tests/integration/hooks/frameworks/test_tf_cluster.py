"""How ranks that read TF_CONFIG connect: real sockets, a real rank's process, and foreign connections."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path

import pytest

from outrider.runtime.ports import find_port
from training_hooks.frameworks import tf_config

DEADLINE = 300


def environment(rank: int, world: int, port: int, address: str = "127.0.0.1") -> dict[str, str]:
    place = {"MASTER_ADDR": address, "MASTER_PORT": str(port), "OUTRIDER_GENERATION": "1.2"}
    return {"RANK": str(rank), "WORLD_SIZE": str(world), **place}


def says(port: int, data: bytes) -> bytes:
    """Rank 0's answer to these bytes, as soon as it listens."""
    until = time.monotonic() + DEADLINE
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), DEADLINE) as connection:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                return connection.recv(100)
        except ConnectionRefusedError:
            assert time.monotonic() < until
            time.sleep(0.01)


def meets(environ: dict[str, str]) -> Future[list[str]]:
    """Runs in a thread that ends with the process, so that a failed test does not wait for it."""
    found: Future[list[str]] = Future()
    place = tf_config.Place(environ)
    threading.Thread(target=lambda: found.set_result(tf_config.meet(place)), daemon=True).start()
    return found


@pytest.mark.parametrize("world", [1, 2, 5])
def test_every_rank_gets_all_addresses_in_any_order_of_arrival(world: int) -> None:
    port = find_port()
    ranks = [meets(environment(rank, world, port)) for rank in reversed(range(world))]
    found = [rank.result(DEADLINE) for rank in ranks]
    assert all(workers == found[0] for workers in found)
    assert len(set(found[0])) == world
    for worker in found[0]:
        host, _, own = worker.rpartition(":")
        assert host == "127.0.0.1"
        socket.create_server(("", int(own))).close()  # it is given back, for TensorFlow


def test_a_connection_with_another_message_is_ignored_and_blocks_no_rank() -> None:
    """A connection that sends too much is closed: depending on the moment that is a reset or a closed socket."""
    port = find_port()
    first = meets(environment(0, 2, port))
    for data in (b"", b"GET / HTTP/1.1\n", b"x" * 5000, b"[]\n", b'{"generation": "1.2", "rank": "1"}\n',
                 b'{"generation": "1.1", "rank": 1, "port": 80}\n',
                 b'{"generation": "1.2", "rank": 2, "port": 80}\n'):  # fmt: skip
        try:
            assert says(port, data) == b""
        except TimeoutError:
            raise
        except OSError:
            assert len(data) > tf_config.LONGEST
    second = meets(environment(1, 2, port))
    assert first.result(DEADLINE) == second.result(DEADLINE)


def test_addresses_of_ipv6_are_written_as_tensorflow_reads_them() -> None:
    assert tf_config.named("fd00::1", 80) == "[fd00::1]:80"


RANK = """
import json, os, sys
from training_hooks.frameworks import tf_config

class Worker: pass
worker, process = Worker(), os.getpid()
tf_config.offer(worker, lambda: worker if os.getpid() == process else None)
"""
LOOK = "print(os.environ.get('TF_CONFIG'), 'TF_CONFIG' in os.environ, os.environ.__class__.__name__)\n"


def rank(script: str, **changes: str) -> str:
    """The output of a single rank."""
    given = {**os.environ, **environment(0, 1, find_port()), **changes}
    done = subprocess.run(
        [sys.executable, "-c", RANK + script], env=given, cwd=Path(__file__).parents[4], capture_output=True, text=True,
        timeout=DEADLINE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    "look", ["os.environ['TF_CONFIG']", "os.environ.get('TF_CONFIG', '{}')", "os.getenv('TF_CONFIG')"]
)
def test_the_variable_exists_as_soon_as_it_is_read(look: str) -> None:
    before, config, name, child = rank(
        f"print('TF_CONFIG' in dict(os.environ))\nprint({look})\nprint(os.environ.__class__.__name__, flush=True)\n"
        "os.system('echo $TF_CONFIG')\n"
    ).splitlines()
    assert (before, name, child) == ("False", "_Environ", config)
    assert json.loads(config)["task"] == {"type": "worker", "index": 0}
    assert len(json.loads(config)["cluster"]["worker"]) == 1


def test_a_variable_that_the_user_has_set_stays() -> None:
    assert rank(LOOK, TF_CONFIG="{}") == "{} True _Environ"
    assert rank("os.environ['TF_CONFIG'] = 'mine'\n" + LOOK) == "mine True _Environ"


def test_a_job_of_torch_never_sees_it() -> None:
    assert rank("sys.modules['torch'] = sys\n" + LOOK).startswith("None False")


def test_a_child_of_a_rank_is_not_a_worker() -> None:
    assert rank("if os.fork() == 0:\n    " + LOOK + "else:\n    os.wait()\n").startswith("None False")


def test_without_a_rendezvous_port_the_variable_is_not_set() -> None:
    with socket.create_server(("", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert rank(LOOK, WORLD_SIZE="2", MASTER_PORT=port) == "None False _Environ"
