"""Errors that end a job early, and errors that are worth another try."""

from __future__ import annotations

import pytest

from tests.unit.master.core.play import Play, job, running


def fail_alike(play: Play, *members: str, error: str = "ValueError", message: str = "loss is nan in batch 10",
               step: int | None = None) -> None:  # fmt: skip
    for member in members:
        play.crash(member, code=1, signal=None, error=error, message=message, step=step)


def test_an_exception_at_the_same_step_in_three_generations_ends_the_job() -> None:
    play = running(2)
    for number in range(3):
        fail_alike(play, "worker-1", message=f"loss is nan in batch {number}", step=9)
        if number < 2:
            play.until(lambda: play.is_running() and play.ended() is None)
            play.run(0.05)
    play.until(lambda: play.ended() is not None, 5.0)
    end = play.ended()
    assert end is not None
    assert "the same error ended 3 generations in a row, and none of them got past step 9" in end.reason
    assert play.generation.number == 3


@pytest.mark.parametrize("steps", [(9, 19, 29, 39), (9, 9, 12, 9)])
def test_an_exception_after_more_steps_each_time_is_worth_another_try(steps: tuple[int, ...]) -> None:
    play = running(2)
    for step in steps:
        fail_alike(play, "worker-1", step=step)
        play.until(lambda: play.is_running())
        play.run(0.05)
    assert play.ended() is None


TRANSIENT = [
    ("OSError", "[Errno 28] No space left on device"),
    ("OSError", "[Errno 5] Input/output error"),
    ("OSError", "[Errno 116] Stale file handle"),
    ("FileNotFoundError", "[Errno 2] No such file or directory: '/mnt/data/00017.tar'"),
    ("ConnectionResetError", "[Errno 104] Connection reset by peer"),
    ("TimeoutError", "timed out"),
    ("socket.gaierror", "[Errno -3] Temporary failure in name resolution"),
    ("requests.exceptions.ConnectionError", "HTTPSConnectionPool(host='hub', port=443): Max retries exceeded"),
    ("requests.exceptions.HTTPError", "503 Server Error: Service Unavailable for url: https://hub/x"),
    ("urllib.error.URLError", "<urlopen error [Errno -2] Name or service not known>"),
    ("botocore.exceptions.ClientError", "An error occurred (SlowDown) when calling the GetObject operation"),
    ("torch.AcceleratorError", "CUDA error: an illegal memory access was encountered"),
    ("torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB"),
    ("RuntimeError", "CUDA error: device-side assert triggered"),
    ("RuntimeError", "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR"),
    ("RuntimeError", "NCCL communicator was aborted on rank 1"),
    ("RuntimeError", "DataLoader worker (pid 812) is killed by signal: Killed."),
    ("torch.distributed.DistStoreError", "Socket Timeout"),
    ("MemoryError", ""),
    ("grpc._channel._InactiveRpcError", "StatusCode.UNAVAILABLE"),
]


@pytest.mark.parametrize(("error", "message"), TRANSIENT)
def test_errors_that_may_pass_are_retried_until_the_restarts_are_used_up(error: str, message: str) -> None:
    play = running(2)
    for _ in range(5):
        fail_alike(play, "worker-1", error=error, message=message, step=9)
        play.until(lambda: play.is_running())
        play.run(0.05)
    assert play.ended() is None


ONE_GPU = """NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:93, invalid usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.28.9
ncclInvalidUsage: This usually reflects invalid usage of NCCL library.
Last error:
Duplicate GPU detected : rank %d and rank %d both on CUDA device 60"""  # noqa: E501


def test_two_ranks_on_one_gpu_end_the_job_with_the_message_of_nccl() -> None:
    play = Play(job(2))
    for _ in range(3):
        play.until(lambda: play.is_running() and play.ended() is None)
        for rank, member in enumerate(("worker-0", "worker-1")):
            play.crash(member, code=1, signal=None, error="torch.distributed.DistBackendError",
                       message=ONE_GPU % (rank, 1 - rank))  # fmt: skip
        play.run(0.05)
    play.until(lambda: play.ended() is not None, 5.0)
    end = play.ended()
    assert end is not None
    assert "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 60 (NCCL error in: " in end.reason
    assert "the same error ended 3 generations in a row" in end.reason


def test_all_restarts_that_the_user_requested_are_made() -> None:
    play = running(2, max_restarts=4, max_restarts_asked=True)
    for _ in range(4):
        fail_alike(play, "worker-1", step=9)
        play.until(lambda: play.is_running())
        play.run(0.05)
    assert play.ended() is None
    fail_alike(play, "worker-1", step=9)
    play.until(lambda: play.ended() is not None, 5.0)
    end = play.ended()
    assert end is not None
    assert "all 4 restarts of the budget are used" in end.reason


@pytest.mark.parametrize(
    ("has_stdin", "reason"),
    [(False, "ranks have no standard input under Outrider"), (True, "its debugger was quit, or its standard input")],
)
@pytest.mark.parametrize(("error", "message"), [("bdb.BdbQuit", ""), ("EOFError", "EOF when reading a line")])
def test_a_rank_that_asks_for_input_ends_the_job_with_the_reason(
    error: str, message: str, has_stdin: bool, reason: str
) -> None:
    play = running(2, has_stdin=has_stdin)
    fail_alike(play, "worker-1", error=error, message=message, step=3)
    play.until(lambda: play.ended() is not None, 5.0)
    end = play.ended()
    assert end is not None
    assert reason in end.reason


def at_import(play: Play, error: str, message: str, code: int = 1) -> None:
    for member in ("worker-0", "worker-1"):
        play.crash(member, code=code, signal=None, error=error, message=message, step=0, at_import=bool(error))


@pytest.mark.parametrize(("error", "code"), [("SyntaxError", 1), ("NameError", 1), ("", 2)])
def test_an_error_that_needs_a_change_ends_the_job_in_its_first_generation(error: str, code: int) -> None:
    play = Play(job(2))
    play.until_running()
    at_import(play, error, "it is wrong", code)
    play.until(lambda: play.ended() is not None, 1.0)
    assert play.generation.number == 1


def test_another_error_of_all_ranks_at_import_is_retried_once_ten_seconds_later() -> None:
    play = Play(job(2))
    play.until_running()
    at_import(play, "KeyError", "'TF_CONFIG'")
    begun = play.now
    play.until(lambda: play.is_running() and play.generation.number == 2, 30.0)
    assert 9.9 < play.now - begun < 15.0
    at_import(play, "KeyError", "'TF_CONFIG'")
    play.until(lambda: play.ended() is not None, 1.0)
    end = play.ended()
    assert end is not None
    assert "every rank fails at import the same way" in end.reason


def test_the_only_rank_of_a_job_is_all_of_them() -> None:
    play = Play(job(1))
    play.until_running()
    play.crash("worker-0", code=1, signal=None, error="SyntaxError", message="x", step=0, at_import=True)
    assert play.is_over, "no other rank is waited for"


def test_input_at_import_ends_the_job_without_a_second_try() -> None:
    play = Play(job(2))
    play.until_running()
    at_import(play, "EOFError", "EOF when reading a line")
    play.until(lambda: play.ended() is not None, 5.0)
    end = play.ended()
    assert end is not None
    assert "ranks have no standard input" in end.reason


def test_a_failed_import_gets_no_second_try_if_no_restart_is_left() -> None:
    play = running(2, max_restarts=0)
    at_import(play, "RuntimeError", "no such model")
    play.until(lambda: play.ended() is not None, 5.0)
    end = play.ended()
    assert end is not None
    assert "no restart is" in end.reason
