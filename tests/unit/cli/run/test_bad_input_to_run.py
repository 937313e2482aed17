"""A job that cannot run as requested is refused before anything is created, with what the value must be."""

from __future__ import annotations

import importlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def script(tmp_path: Path, home: Path) -> Iterator[Path]:
    """A script that would leave a trace if it ever ran, and a check that nothing was left behind."""
    trace = tmp_path / "ran"
    path = tmp_path / "train.py"
    path.write_text(f"open({str(trace)!r}, 'w')")
    before = sorted(home.rglob("*"))
    yield path
    assert not trace.exists()
    assert sorted(home.rglob("*")) == before


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--stdin", "2", "--nnodes", "2"], ["--stdin 2", "ranks 0 to 1"]),
        (["--stdin", "x"], ["--stdin x: must be a whole number of at least 0"]),
        (["--stdin", "0", "--ps", "1"], ["--stdin and --ps"]),
        (["--quiet", "--log-json"], ["--quiet and --log-json"]),
        (["--nnodes", "0"], ["--nnodes", "0", "1 <= MIN <= MAX <= 512"]),
        (["--nnodes", "4:3"], ["4:3", "1 <= MIN <= MAX"]),
        (["--nnodes=-1"], ["--nnodes -1: must be", "MIN:MAX"]),
        (["--nnodes", "1:2:3"], ["--nnodes 1:2:3: must be", "MIN:MAX"]),
        (["--nnodes", "100000"], ["100000", "512"]),
        (["--nproc-per-node", "0"], ["--nproc-per-node", "1 to 1024"]),
        (["--nproc_per_node", "two"], ["--nproc-per-node two: must be", "auto, gpu, cpu"]),
        (["--max-restarts", "-1"], ["--max-restarts -1: must be a whole number from 0 to 1000000"]),
        (["--max_restarts", "x"], ["--max-restarts x: must be"]),
        (["--max-relaunches", "-2"], ["--max-relaunches", "-2"]),
        (["--spares", "-1"], ["--spares", "-1"]),
        (["--spares", "99999"], ["99999", "512"]),
        (["--silent-after", "0.1"], ["--silent-after", "0.1"]),
        (["--silent-after", "soon"], ["--silent-after soon: must be"]),
        (["--silent-after", "nan"], ["--silent-after nan: must be"]),
        (["--hang-after", "0"], ["--hang-after 0: must be", "1 to 604800", "off"]),
        (["--hang-after=-5"], ["--hang-after -5: must be"]),
        (["--hang-after", "1.5"], ["--hang-after 1.5: must be", "whole"]),
        (["--hang-after", "nan"], ["--hang-after nan: must be", "PHASE=SECONDS", "step, init, checkpoint, eval"]),
        (["--hang-after", "soon"], ["--hang-after soon: must be off, SECONDS"]),
        (["--hang-after", ""], ["--hang-after ''", "must be off, SECONDS"]),
        (["--hang-after", "x,save=5"], ["--hang-after x,save=5: 'x': must be", "step, init, checkpoint, eval"]),
        (["--hang-after", "step=5,init=x"], ["init=x: must be a whole number"]),
        (["--hang-after", "step=5,step=6"], ["step: must be given only once"]),
        (["--hang-after", "99999999"], ["--hang-after 99999999: must be", "604800"]),
        (["--scaling", "fast"], ["--scaling", "'fast'", "throughput"]),
        (["--scaling", "throughput"], ["--scaling", "--nnodes 1", "1:4"]),
        (["--nnodes", "1:4", "--scaling", "throughput,gain=1"], ["'gain=1'", "min-gain=, cooldown=, evaluation="]),
        (["--nnodes", "1:4", "--scaling", "throughput,min-gain=2"], ["min-gain", "'2'", "linear"]),
        (["--nnodes", "1:4", "--scaling", "throughput,cooldown=soon"], ["cooldown", "'soon'", "10m"]),
        (["--nnodes", "1:4", "--scaling", "throughput,cooldown=1,cooldown=2"], ["cooldown: must be given only once"]),
        (["--nnodes", "1:4", "--scaling", "schedule"], ["must have at least one entry", "0 8 * * 1-5 = 2"]),
        (["--nnodes", "1:4", "--scaling", "schedule; 0 8 * *=2"], ["'0 8 * *=2'", "five fields"]),
        (["--nnodes", "1:4", "--scaling", "schedule; 0 8 * * *"], ["'0 8 * * *': must be CRON = N"]),
        (["--nnodes", "1:4", "--scaling", "schedule; 0 8 * * *=0"], ["'0'", "from 1"]),
        (["--nnodes", "1:4", "--scaling", "schedule; zone=Mars; 0 8 * * *=2"], ["zone", "'Mars'", "Europe/Berlin"]),
        (["--nnodes", "1:4", "--scaling", "schedule; 0 8 * * *=2; 0 9 * * *=5"], ["0 9 * * * = 5", "--nnodes 1:4"]),
        (["--metrics", "loss (?P<loss>["], ["--metrics", "must be a regular expression", "at character 15"]),
        (["--metrics", "loss (?P<lost>x)"], ["--metrics", 'Unsupported value: "(?P<lost>...)"', "(?P<loss>...)"]),
        (["--metrics", "loss"], ["--metrics", "must have a named group", "(?P<step>...)"]),
        (["--metrics", "(?P<loss>.*)"], ["--metrics", "must not match an empty line"]),
        (["--job", "---"], ["--job", "'---'", "letters, digits"]),
        (["--job", ""], ["--job", "letters, digits"]),
        (["--virtual-local-rank"], ["--virtual-local-rank", "its own LOCAL_RANK"]),
        (["--max-restart", "3"], ["No such option '--max-restart'", "Did you mean '--max-restarts'?"]),
        (["--job", "x" * 64], ["--job", "63"]),
        (["--python", "no-such-python"], ["--python", "no-such-python"]),
        (["--workers", "2", "--chief"], ["--workers and --chief", "--ps N"]),
        (["--ps", "0"], ["--ps", "0"]),
        (["--ps", "1", "--workers", "0"], ["--workers", "1 <= MIN"]),
        (["--ps", "1", "--nnodes", "2"], ["--nnodes", "--workers MIN:MAX"]),
        (["--ps", "1", "--nproc-per-node", "2"], ["--nproc-per-node", "one process"]),
        (["--ps", "1", "--spares", "1"], ["--spares", "PS job"]),
        (["--ps", "1", "--isolate"], ["--isolate", "network"]),
        (["--no-such-flag"], ["--no-such-flag"]),
        (["--virtual-local-rank"], ["--virtual-local-rank"]),
        (["--chaos", "bad-node@rank-index=0"], ["--chaos bad-node", "give --network-check too"]),
        (["--network-check", "--chaos", "bad-node"], ['"bad-node"', "bad-node=slow@rank-index=N"]),
        (["--chaos", "flood@rank-index=0"], ['Unsupported value: "flood"', "cpu-load=PERCENT"]),
        (["--chaos", "cpu-load@rank-index=0"], ['"cpu-load": must be cpu-load=PERCENT', "an integer from 1 to 100"]),
        (["--chaos", "fill-memory=0@rank-index=0"], ['"fill-memory=0": must be', "an integer from 1 to 100"]),
        (["--chaos", "cpu-load=90:soon@rank-index=0"], ["the duration must be greater than 0", "10m"]),
        (["--chaos", "cut-network@rank-index=0"], ["--chaos cut-network", "this machine's own network", "--isolate"]),
        (["--chaos", "slow-network=99@rank-index=0"], ["--chaos slow-network=99", "give --isolate too"]),
        (
            ["--isolate", "--chaos", "slow-network@rank-index=0"],
            ["slow-network=MS, with MS an integer from 1 to 60000"],
        ),
        (["--chaos", "hang@rank-index=0"], ["hang can only be injected while the job runs"]),
        (
            ["--network-check", "--chaos", "bad-node@rank-index=1"],
            ["rank-index=1", "rank-index must be between 0 and 0"],
        ),
        (["--member-cpus", "0.5"], ["--member-cpus", "--isolate"]),
        (["--member-memory", "1Gi"], ["--member-memory", "--isolate"]),
        (["--isolate", "--member-cpus", "0"], ["--member-cpus", "0.01"]),
        (["--isolate", "--member-cpus", "nan"], ["--member-cpus nan: must be at least 0.01"]),
        (["--isolate", "--member-memory", "much"], ["--member-memory much: must be", "512Mi"]),
        (["--isolate", "--member-memory", "1Mi"], ["--member-memory 1Mi: must be at least 32Mi"]),
        (["--checkpoint-memory", "much"], ["--checkpoint-memory much: must be", "2Gi"]),
        (["--checkpoint-memory", "1000"], ["--checkpoint-memory", "at least 1Mi"]),
        (["--checkpoint-path", "ckpt/"], ["--checkpoint-path ckpt/: must be the file name", "ckpt/last.pt"]),
        (["--checkpoint-path=~/last.pt"], ["--checkpoint-path '~/last.pt': must be the file name", "ckpt/last.pt"]),
        (["--checkpoint-path", "/tmp"], ["--checkpoint-path /tmp: must be a file"]),
        (["--share-gpus", "maybe"], ["--share-gpus maybe: must be one of on, off"]),
        (["--nnodes", "2:1", "--quiet"], ["Error: --nnodes 2:1: must be 1 <= MIN <= MAX <= 512"]),
        (["--checkpoint-path", "last.pt"], ["--checkpoint-path", "--checkpoint-memory 2Gi"]),
        (["--no-python", "-m"], ["--no-python", "--module"]),
    ],
)
def test_a_wrong_flag_is_named_with_what_it_must_be(
    outrider: Any, script: Path, flags: list[str], named: list[str]
) -> None:
    result = outrider("run", *flags, script)
    assert result.exit_code == 2
    for part in named:
        assert part in result.stderr


def test_gpu_on_a_machine_without_one_is_refused(outrider: Any, script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    result = outrider("run", "--nproc-per-node", "gpu", script)
    assert result.exit_code == 2
    assert "no GPU" in result.stderr


def test_a_script_that_does_not_exist_is_named(outrider: Any, home: Path) -> None:
    result = outrider("run", "no/such/train.py")
    assert result.exit_code == 2
    assert "script 'no/such/train.py' not found" in result.stderr
    assert not list(home.iterdir())


def test_the_error_for_a_program_in_place_of_a_script_names_the_dashes(outrider: Any, home: Path) -> None:
    result = outrider("run", "bash", "-c", "true")
    assert result.exit_code == 2
    assert "outrider run -- bash" in result.stderr


def test_a_command_that_does_not_exist_is_named(outrider: Any, home: Path) -> None:
    result = outrider("run", "--", "no-such-program", "x")
    assert result.exit_code == 2
    assert "program 'no-such-program' not found" in result.stderr


def test_a_command_line_without_a_script_is_refused(outrider: Any, home: Path) -> None:
    assert outrider("run").exit_code == 2
    assert outrider("run", "--").exit_code == 2


def test_a_second_job_of_the_same_name_is_refused(outrider: Any, running_job: Any, home: Path) -> None:
    running_job("twice")
    before = sorted(home.rglob("*"))
    result = outrider("run", "--job", "twice", __file__)
    assert result.exit_code == 2
    assert "job 'twice' is already running" in result.stderr
    assert sorted(home.rglob("*")) == before


def test_a_home_that_is_not_a_folder_is_named(outrider: Any, script: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("OUTRIDER_HOME", str(script))
    result = outrider("run", script)
    assert result.exit_code == 2
    assert "OUTRIDER_HOME" in result.stderr
    assert "must be a folder" in result.stderr


def test_a_log_folder_that_cannot_be_written_is_named(outrider: Any, script: Path) -> None:
    result = outrider("run", "--log-dir", "/proc/logs", script)
    assert result.exit_code == 2
    assert "--log-dir /proc/logs" in result.stderr


def test_a_socket_path_that_is_too_long_for_the_kernel_is_refused(
    outrider: Any, script: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    deep = tmp_path / ("d" * 60)
    monkeypatch.setenv("OUTRIDER_HOME", str(deep))
    result = outrider("run", script)
    assert result.exit_code == 2
    assert "107 bytes" in result.stderr
    assert "OUTRIDER_HOME" in result.stderr
    assert not deep.exists()


def test_the_error_for_too_few_open_files_says_how_many_are_needed(outrider: Any, script: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (99, limits[1]))
    try:
        result = outrider("run", "--nnodes", "1:8", "--spares", "2", script)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert result.exit_code == 2
    assert "10 members need 100 open files, but `ulimit -n` allows 99" in result.stderr


def test_a_folder_in_place_of_a_script_is_named(outrider: Any, home: Path, tmp_path: Path) -> None:
    result = outrider("run", tmp_path)
    assert result.exit_code == 2
    assert f"SCRIPT {tmp_path}: must be a Python file, or a folder with a __main__.py" in result.stderr
    assert not list(home.iterdir())


def test_an_empty_script_name_is_refused(outrider: Any, home: Path) -> None:
    result = outrider("run", "")
    assert result.exit_code == 2
    assert "script '' not found" in result.stderr
    assert not list(home.iterdir())


def test_a_deleted_current_folder_is_reported(
    outrider: Any, script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    result = outrider("run", script)
    monkeypatch.undo()
    assert result.exit_code == 2
    assert "the current folder no longer exists" in result.stderr


def test_isolation_needs_root(outrider: Any, script: Path) -> None:
    importlib.import_module(
        "outrider.master.local.sandbox.isolation"
    )  # imported now: without rights our Python's own modules may not be readable
    me = os.geteuid()
    if me == 0:
        os.seteuid(65534)
    try:
        result = outrider("run", "--isolate", script)
    finally:
        os.seteuid(me)
    assert result.exit_code == 2
    assert "--isolate: only root" in result.stderr
