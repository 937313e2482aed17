"""`outrider logs` shows what the ranks wrote, from files as the trainer's reader writes them."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from outrider.cli.commands import logs as logs_command
from outrider.cli.main import main
from training_hooks.logs import files as logs_files


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OUTRIDER_HOME", str(tmp_path))
    folder = tmp_path / "jobs" / "train" / "logs"
    folder.parent.mkdir(parents=True)
    (folder.parent / "lock").write_text("")
    return folder


def written(
    logs: Path, generation: int, rank: int, *pieces: tuple[float, bytes], stream: str = "stdout", kept: bool = True
) -> None:
    """A rank's stream, each piece at its time."""
    file: logs_files.File = logs_files.opened(str(logs), generation, rank, stream, kept)
    with pytest.MonkeyPatch.context() as patch:
        for moment, data in pieces:
            patch.setattr(logs_files.time, "time", lambda moment=moment: moment)
            file.write(data)
    file.close()


def outrider(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["logs", *arguments], catch_exceptions=False)


def test_lines_of_all_ranks_come_in_the_order_of_their_times_generation_by_generation(logs: Path) -> None:
    written(logs, 2, 0, (30.0, b"again\n"))
    written(logs, 1, 0, (10.0, b"a\n"), (14.0, b"c\n"))
    written(logs, 1, 1, (12.0, b"b\n"), (16.0, b"d"))
    written(logs, 1, 1, (13.0, b"oh\r\n"), stream="stderr")
    shown = outrider("train").output.splitlines()
    assert shown == [
        "--- generation 1 ---", "[0]: a", "[1]: b", "[1]: oh", "[0]: c", "[1]: d", "--- generation 2 ---", "[0]: again",
    ]  # fmt: skip
    assert outrider("train", "--rank", "0", "--generation", "1.1").output == "a\nc\n"
    assert outrider("train", "--rank", "0", "--rank", "1", "--generation", "2").output == "[0]: again\n"
    assert outrider("train", "--generation", "1", "--tail", "2").output == "[0]: c\n[1]: d\n"


def test_since_leaves_out_older_lines(logs: Path) -> None:
    now = time.time()
    written(logs, 1, 0, (now - 300, b"old\n"), (now - 5, b"new\n"))
    assert outrider("train", "--since", "1m", "--rank", "0", "--generation", "1").output == "new\n"
    assert "--since soon: must be a number of seconds" in outrider("train", "--since", "soon").output


def test_the_newer_half_of_a_full_file_is_kept_and_read_in_order(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs_files, "MOST_BYTES", 1000)
    pieces = [(float(number), b"line %03d\n" % number) for number in range(1000)]
    written(logs, 1, 0, *pieces)
    files = [path for path in logs.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files if ".log" in path.name) <= 2000
    shown = outrider("train", "--rank", "0", "--generation", "1").output.splitlines()
    assert shown[-1] == "line 999"
    assert shown == [f"line {number:03}" for number in range(1000 - len(shown), 1000)]
    assert len(shown) > 100


def test_the_oldest_generations_are_forgotten(logs: Path) -> None:
    for generation in range(1, logs_files.MOST_GENERATIONS + 4):
        written(logs, generation, 0, (1.0, b"x\n"))
    kept = sorted(int(path.name) for path in logs.iterdir())
    assert kept == list(range(4, logs_files.MOST_GENERATIONS + 4))


def test_follow_continues_across_full_files_and_new_generations_until_the_job_ends(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs_files, "MOST_BYTES", 1000)
    lock = os.open(logs.parent / "lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)

    def work() -> Iterator[None]:
        for generation in (1, 2):
            file = logs_files.opened(str(logs), generation, 0, "stdout", True)
            for number in range(600):
                file.write(b"%d %d\n" % (generation, number))
                if number % 50 == 0:
                    yield
            file.write(b"the end of %d" % generation)
            file.close()
            assert len(list(logs.glob(f"{generation}/0/stdout.log*"))) == 2
        os.close(lock)
        yield

    works = work()
    monkeypatch.setattr(logs_command.time, "sleep", lambda _seconds: next(works))
    shown = outrider("train", "--rank", "0", "--follow").output.splitlines()
    assert shown == [
        "--- generation 1 ---", *(f"1 {number}" for number in range(600)), "the end of 1",
        "--- generation 2 ---", *(f"2 {number}" for number in range(600)), "the end of 2",
    ]  # fmt: skip


def test_lines_of_a_ps_job_begin_with_the_name_of_their_member(logs: Path) -> None:
    written(logs / "ps-0", 4, 0, (11.0, b"serving\n"))
    written(logs / "worker-0", 7, 0, (10.0, b"step 1\n"))
    assert outrider("train").output == "[worker-0]: step 1\n[ps-0]: serving\n"
    assert outrider("train", "--member", "ps-0").output == "[ps-0]: serving\n"
    assert "no output of a member 'ps-9'; it has ps-0, worker-0" in outrider("train", "--member", "ps-9").output


def test_the_files_of_log_dir_have_no_times_and_are_shown_rank_by_rank(logs: Path) -> None:
    written(logs, 1, 1, (12.0, b"b\n"), kept=False)
    written(logs, 1, 0, (15.0, b"a\n"), kept=False)
    assert outrider("train").output == "--- generation 1 ---\n[0]: a\n[1]: b\n"
    assert "must not be used for a job with --log-dir" in outrider("train", "--since", "1h").output


def test_the_error_for_missing_output_says_which_output_there_is(logs: Path) -> None:
    assert "train: no rank has written anything yet" in outrider("train").output
    written(logs, 3, 0, (1.0, b"x\n"))
    written(logs, 4, 1, (1.0, b"x\n"))
    missing = outrider("train", "--rank", "7")
    assert missing.exit_code != 0
    assert "it has ranks 0 to 1 of generations 3 to 4" in missing.output
    assert "use --rank N for this job" in outrider("train", "--member", "worker-0").output
    assert "--generation x: must be a generation, such as 3 or 1.3" in outrider("train", "--generation", "x").output
    assert "job 'nosuch' not found" in outrider("nosuch").output
