"""The probe of the node check: what it measures with each library, and that it always ends."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from outrider.runtime.ports import find_port
from tests.integration.hooks.agent import Line, Trainer, wait_until
from tests.integration.hooks.container import Container
from training_hooks.nodecheck import allgather, matmul
from training_hooks.process import termination_message

PLAIN = "import time\ntime.sleep(600)\n"
PYTHONS = [Path.home() / f".pyenv/versions/{name}/bin/python3" for name in ("3.8.18",)]
Make = Callable[..., Trainer]


def order(number: int, round_: int = 0, **other: Any) -> dict[str, Any]:
    plain = {"member": "worker-0", "nproc": 1, "port": 0, "address": "127.0.0.1", "peers": [], "awaited": []}
    return {**plain, "do": "check", "order": number, "round": round_, "compute": True, "alone": False, "seconds": 120,
            **other}  # fmt: skip


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Trainer] = []

    def trainer(name: str = "one", **options: Any) -> Trainer:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "train.py").write_text(PLAIN)
        made.append(Trainer(folder, "train.py", **options))
        made[-1].announced()
        return made[-1]

    yield trainer
    for each in made:
        each.close()


@pytest.fixture
def plain_python() -> str:
    """A Python with neither torch nor numpy, as old as may be."""
    found = [str(path) for path in PYTHONS if path.exists()]
    if not found:
        pytest.skip("there is no other Python here")
    return found[0]


# -- the all-gather -----------------------------------------------------------------------------------------------
def together(*orders: dict[str, Any], seconds: float = allgather.MEET_SECONDS) -> list[list[dict[str, Any]]]:
    """The results of these members, which run at the same time, each on its own thread."""
    found: list[list[dict[str, Any]]] = [[] for _ in orders]

    def one(index: int) -> None:
        meeting = allgather.Meeting(orders[index])
        meeting.meet(seconds)
        found[index] = meeting.gather()
        meeting.close()

    threads = [threading.Thread(target=one, args=(index,)) for index in range(len(orders))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    return found


def peer(member: str, port: int) -> dict[str, Any]:
    return {"member": member, "address": "127.0.0.1", "port": port}


def test_two_members_exchange_their_blocks() -> None:
    port = find_port()
    found = together(order(1, member="a", port=port, awaited=["b"]), order(2, member="b", peers=[peer("a", port)]))
    assert [[(each["member"], each["error"]) for each in of] for of in found] == [[("b", "")], [("a", "")]]
    assert all(each["seconds"] > 0 for of in found for each in of)


def test_of_three_members_each_exchanges_with_both_others() -> None:
    one, two = find_port(), find_port()
    found = together(
        order(1, member="a", port=one, awaited=["b", "c"]),
        order(2, member="b", port=two, peers=[peer("a", one)], awaited=["c"]),
        order(3, member="c", peers=[peer("a", one), peer("b", two)]),
    )
    met = [sorted(each["member"] for each in of if not each["error"]) for of in found]
    assert met == [["b", "c"], ["a", "c"], ["a", "b"]]


def test_of_three_members_two_connect_although_the_first_is_missing() -> None:
    gone, two = find_port(), find_port()
    found = together(
        order(2, member="b", port=two, peers=[peer("a", gone)], awaited=["c"]),
        order(3, member="c", peers=[peer("a", gone), peer("b", two)]),
        seconds=5.0,
    )
    met = [sorted(each["member"] for each in of if not each["error"]) for of in found]
    assert met == [["c"], ["b"]]


def test_a_missing_member_is_named_with_the_error() -> None:
    port = find_port()
    (found,) = together(order(1, member="b", peers=[peer("a", port)]), seconds=0.3)
    assert found[0]["member"] == "a"
    assert f"127.0.0.1:{port}: Connection refused" in found[0]["error"]


def test_a_member_of_another_round_is_not_accepted() -> None:
    port = find_port()
    one, two = order(1, 0, member="a", port=port, awaited=["b"]), order(2, 1, member="b", peers=[peer("a", port)])
    assert all(each["error"] for of in together(one, two, seconds=0.5) for each in of)


def test_a_foreign_connection_is_dropped() -> None:
    port = find_port()
    meeting = allgather.Meeting(order(1, member="a", port=port, awaited=["b"]))
    with socket.create_connection(("127.0.0.1", port)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n".ljust(allgather.WORD))
        meeting.meet(0.3)
        assert meeting.errors["b"].startswith("it did not connect")
    meeting.close()


def test_a_taken_port_is_reported_as_such() -> None:
    with socket.create_server(("", 0)) as taken, pytest.raises(allgather.PortInUse):
        allgather.Meeting(order(1, port=taken.getsockname()[1], awaited=["b"]))


def test_a_member_reaches_itself() -> None:
    assert allgather.alone("127.0.0.1") > 0
    with pytest.raises(OSError, match=r"assign|address"):
        allgather.alone("203.0.113.1")


# -- the matmul ---------------------------------------------------------------------------------------------------
def test_plain_python_multiplies_without_torch_and_numpy() -> None:
    matmul._in_python(8)()
    with pytest.raises(matmul.Wrong, match="must be 8; they are from 7"):
        matmul._check(7.0, 8.0, 8)


# -- in a container -----------------------------------------------------------------------------------------------
def checked(trainer: Trainer, asked: Line) -> Line:
    trainer.agent.say(**asked)
    return trainer.agent.expect(lambda line: line.get("event") == "checked" and line["order"] == asked["order"])


def test_a_template_without_torch_and_numpy_is_measured_too(make: Make, plain_python: str) -> None:
    trainer = make(python=plain_python)
    found = checked(trainer, order(1, alone=True))
    assert (found["result"], found["kind"], found["error"]) == ("ok", "python", "")
    assert 0 < found["compute"] < found["elapsed"]
    assert found["peers"] == [{"member": "worker-0", "seconds": found["peers"][0]["seconds"], "error": ""}]
    assert trainer.read() == ""
    assert trainer.start()
    trainer.stop()


def test_each_local_device_is_measured(make: Make, plain_python: str) -> None:
    assert checked(make(python=plain_python), order(1, nproc=3))["result"] == "ok"


def test_a_broken_machine_is_reported_with_the_end_of_the_probe(make: Make, plain_python: str) -> None:
    found = checked(make(python=plain_python, OUTRIDER_CHAOS="bad-node"), order(1))
    assert (found["result"], found["error"]) == ("died", "its process was killed by SIGKILL")


@pytest.mark.xdist_group("timing")
def test_a_slow_machine_takes_five_times_as_long(make: Make, plain_python: str) -> None:
    well = checked(make("well", python=plain_python), order(1))
    slow = checked(make("slow", python=plain_python, OUTRIDER_CHAOS="bad-node=slow"), order(1))
    assert slow["cpu"] > 2 * well["cpu"]


def test_a_probe_that_takes_too_long_is_ended(make: Make, plain_python: str) -> None:
    found = checked(make(python=plain_python), order(1, port=find_port(), awaited=["worker-1"], seconds=0.1))
    assert found["result"] == "too slow"


def test_a_repeated_order_gets_the_same_answer_without_a_new_probe(make: Make, plain_python: str) -> None:
    trainer = make(python=plain_python)
    first = checked(trainer, order(1))
    assert checked(trainer, order(1)) == first
    assert checked(trainer, order(2, 1))["round"] == 1


def test_worker_processes_that_are_started_interrupt_the_probe(make: Make, plain_python: str) -> None:
    trainer = make(python=plain_python)
    trainer.agent.say(**order(1, port=find_port(), awaited=["worker-1"]))
    pids = trainer.start()
    assert trainer.agent.expect("checked")["result"] == "interrupted"
    assert checked(trainer, order(2, compute=False))["result"] == "ok"
    assert trainer.stop()["generation"] == [1, 1]
    assert pids


def test_a_new_sidecar_gets_the_last_answer(make: Make, plain_python: str) -> None:
    trainer = make(python=plain_python)
    found = checked(trainer, order(1))
    trainer.agent.hang_up()
    trainer.announced()
    assert trainer.agent.expect("checked") == found


def test_a_launcher_measures_with_a_fresh_python(tmp_path: Path, plain_python: str) -> None:
    container = Container(tmp_path, plain_python)
    try:
        container.listen()
        container.run("sleep", "600")
        hello = container.said(what="launcher")
        container.order(hello, **order(1))
        found = container.said(event="checked")
        assert (found["result"], found["kind"]) == ("ok", "python")
        container.start(hello, 1)
        container.stop(hello, 1)
        container.order(hello, do="finish", code=3, say="worker-0 failed the node check: compute: died")
        assert container.ended() == 3
        assert "outrider: worker-0 failed the node check: compute: died\n" in container.stderr()
    finally:
        container.close()


# -- termination message ------------------------------------------------------------------------------------------
def test_the_reason_for_the_end_is_in_the_log_and_in_the_termination_message(
    make: Make, plain_python: str, tmp_path: Path
) -> None:
    message = tmp_path / "termination-log"
    message.touch()
    trainer = make(python=plain_python, OUTRIDER_TERMINATION_LOG=str(message))
    trainer.agent.say(do="finish", code=3, say="worker-1 failed the node check: network: no answer within 4 s")
    assert trainer.process.wait(300) == 3
    expected = "outrider: worker-1 failed the node check: network: no answer within 4 s\n"
    assert trainer.read() == expected
    assert message.read_text() == expected


def test_without_the_kubelets_file_no_termination_message_is_written(tmp_path: Path) -> None:
    termination_message.report("gone", {"OUTRIDER_TERMINATION_LOG": str(tmp_path / "none")})
    assert os.listdir(tmp_path) == []


def test_a_template_that_is_killed_takes_its_probe_with_it(make: Make, plain_python: str) -> None:
    trainer = make(python=plain_python)
    port = find_port()
    trainer.agent.say(**order(1, port=port, awaited=["worker-1"]))
    wait_until(lambda: _connects(port), "the probe's port")
    trainer.process.send_signal(signal.SIGKILL)
    trainer.process.wait(300)
    wait_until(lambda: not _connects(port), "the end of the probe")


def _connects(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False
