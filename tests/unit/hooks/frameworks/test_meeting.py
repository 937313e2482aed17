"""Ranks that start before rank 0 wait for its store, and in no other case."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from training_hooks.frameworks import rendezvous_wait


@pytest.fixture
def port() -> Iterator[tuple[socket.socket, int]]:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        yield server, server.getsockname()[1]


def place(rank: int, port: int) -> dict[str, str]:
    return {"RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def test_a_rank_waits_until_rank_0_listens(port: tuple[socket.socket, int], monkeypatch: pytest.MonkeyPatch) -> None:
    server, number = port
    looked = 0

    def between_looks(_seconds: float) -> None:
        nonlocal looked
        looked += 1
        if looked == 3:
            server.listen()

    monkeypatch.setattr(rendezvous_wait.time, "sleep", between_looks)
    rendezvous_wait.wait(place(1, number))
    assert looked == 3


def test_rank_0_does_not_wait(port: tuple[socket.socket, int]) -> None:
    rendezvous_wait.wait(place(0, port[1]))


@pytest.mark.parametrize("missing", ["RANK", "MASTER_ADDR", "MASTER_PORT"])
def test_without_an_address_no_rank_waits(port: tuple[socket.socket, int], missing: str) -> None:
    environ = place(1, port[1])
    del environ[missing]
    rendezvous_wait.wait(environ)


@pytest.mark.parametrize(
    ("arguments", "options", "answer"),
    [
        ((), {}, True),
        (("gloo",), {}, True),
        (("gloo", "env://"), {}, True),
        ((), {"init_method": "env://?rank=1"}, True),
        ((), {"init_method": "tcp://10.0.0.1:99"}, False),
        (("gloo", "file:///tmp/meet"), {}, False),
        ((), {"store": object(), "rank": 1, "world_size": 2}, False),
        (("gloo", None, None, 2, 1, object()), {}, False),
    ],
)
def test_only_a_rendezvous_from_the_environment_is_waited_for(
    arguments: tuple[object, ...], options: dict[str, object], answer: bool
) -> None:
    assert rendezvous_wait.is_by_environment(arguments, options) is answer
