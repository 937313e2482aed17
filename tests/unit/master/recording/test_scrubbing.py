"""A placeholder hides a text, and the core decides by it as by the text itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from outrider.master.core.faults import error_signature as errors
from outrider.master.core.faults import node_exclusion
from outrider.master.recording.scrubbing import PHRASES, QUESTIONS, Scrubber, letters
from outrider.wire.messages.generation import WorkerExit

EXIT = WorkerExit(0, 9, 1, error_type="RuntimeError", error_frame="/home/me/train.py:3 main")
PIECES = st.sampled_from(
    [*PHRASES, "hf_secret", "127.0.0.1", "429", "404", "503", "0x7f", "store", "timeout", "x" * 30, "\n", "|", "#",
     "ECC", "Xid 79", "HIP", "killed", "SIGKILL", "rate limit", "ProcessGroupGloo", "abort", "Timed out"]
)  # fmt: skip
MESSAGES = st.lists(PIECES, min_size=1, max_size=5).map(" ".join)


@given(MESSAGES)
@example("[1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via store, but got: timeout")
@example("CUDA error: uncorrectable ECC error encountered")
@example("HTTP 503 from https://user:secret@host/path?token=1")
@example("HTTP 404 from https://user:secret@host/path?token=1")
@example("[Errno 98] Address already in use")
@example("Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000")
def test_the_core_finds_in_a_placeholder_what_it_finds_in_the_message(message: str) -> None:
    exit = replace(EXIT, error_message=message)
    scrubbed = replace(EXIT, error_message=Scrubber().error(message))
    for ask in (errors.is_effect, errors.is_port_clash, errors.is_its_own, errors.is_of_outside):
        assert ask(scrubbed) == ask(exit), (ask.__name__, scrubbed.error_message)
    machine = node_exclusion.OF_THE_MACHINE
    assert bool(machine.search(scrubbed.error_message)) == bool(machine.search(message))
    assert "secret" not in scrubbed.error_message


@given(MESSAGES, MESSAGES)
@example("port 4001 is closed", "port 4002 is closed")
@example("HTTP 404", "HTTP 503")
@example("127.0.0.1", "address already in use")
def test_two_errors_are_the_same_if_and_only_if_their_placeholders_are(one: str, other: str) -> None:
    scrubber = Scrubber()
    exits = [replace(EXIT, error_message=message) for message in (one, other)]
    scrubbed = [
        replace(each, error_message=scrubber.error(each.error_message), error_frame=scrubber.frame(each.error_frame))
        for each in exits
    ]
    signatures, hidden = [*map(errors.signature, exits)], [*map(errors.signature, scrubbed)]
    assert (signatures[0] == signatures[1]) == (hidden[0] == hidden[1])
    assert [scrubber.signature(each) for each in signatures] == hidden, "as in a state that has noted it"


def test_no_letters_of_a_placeholder_are_a_word_that_the_core_looks_for() -> None:
    for number in range(20_000):
        assert not any(asked.search(letters(number)) for asked, _ in QUESTIONS)
        assert not errors.OUTSIDE_TYPE.search(letters(number))


def test_placeholders_are_stable_and_differ() -> None:
    scrubber = Scrubber()
    assert scrubber.text("/data/a") == scrubber.text("/data/a") != scrubber.text("/data/b")
    assert scrubber.text("/data/step-100") != scrubber.text("/data/step-200"), "digits of a path count"
    assert scrubber.text(scrubber.text("/data/a")) == scrubber.text("/data/a"), "a placeholder is not hidden again"


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        ("text", "running", "running"),
        ("text", "", ""),
        ("text", "hunter2", "<redacted-b>"),
        ("name", "worker-3/17", "worker-3/17"),
        ("name", "10.0.0.7:4001", "10.0.0.7:4001"),
        ("name", "https://me:pw@host/x?key=1", "<redacted-b>"),
        ("reason", "OutOfcpu: Node didn't have enough resource: pod secret", "OutOf: <redacted-b>"),
        ("reason", "RestartedTrainer: the trainer's container ended with exit code 1", "Restarted: <redacted-b>"),
        ("reason", "Evicted", "Evicted"),
        ("frame", "/home/me/project/train.py:33 main", "<redacted-b>/train.py:33 main"),
        ("frame", "/opt/py/lib/python3.11/site-packages/torch/x.py:3 f",
         "<redacted-b>/lib/python3.11/site-packages/torch/x.py:3 f"),
        ("frame", "train.py:33 <module>", "train.py:33 <module>"),
        ("number", "2.30e-1", "2.30e-1"),
        ("number", "12 apples", "<redacted-b>"),
        ("cron", "0 8 * * MON-FRI", "0 8 * * MON-FRI"),
        ("cron", "hunter2", "<redacted-b>"),
        ("type", "torch.distributed.DistBackendError", "torch.distributed.DistBackendError"),
    ],
)  # fmt: skip
def test_what_stays_and_what_does_not(kind: str, value: str, shown: str) -> None:
    assert Scrubber().of_kind(kind, value) == shown


def test_a_traceback_keeps_its_frames_and_the_type_of_its_exception() -> None:
    traceback = """Traceback (most recent call last):
  File "/home/me/train.py", line 12, in <module>
    login(token="hf_secret")
  File "/opt/lib/python3.11/site-packages/hub/login.py", line 3, in login
    raise LoginError(f"{token} is wrong")
hub.LoginError: hf_secret is wrong
hf_secret again"""
    assert (
        Scrubber().traceback(traceback)
        == """Traceback (most recent call last):
  File "<redacted-b>/train.py", line 12, in <module>
  File "<redacted-f>/lib/python3.11/site-packages/hub/login.py", line 3, in login
hub.LoginError: <redacted-g>"""
    )
    stack = 'Current thread 0x00007f12 [secret] (most recent call first):\n  File "/home/me/train.py", line 3 in main'
    assert Scrubber().traceback(stack) == (
        'Current thread 0x00007f12 (most recent call first):\n  File "<redacted-b>/train.py", line 3 in main'
    )
    assert Scrubber().traceback("the last line that a script wrote") == "<redacted-b>"
