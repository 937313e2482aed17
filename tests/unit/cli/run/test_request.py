"""How a command line is read: torchrun's spelling, the Python of the script, the script's own arguments."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, get_type_hints

import click
import pytest

from outrider.cli import job_dirs
from outrider.cli.errors import UserError
from outrider.cli.flags import flags_of
from outrider.cli.run import ps_flags
from outrider.cli.run.command import run
from outrider.cli.run.node_config import node_config
from outrider.cli.run.request import Request
from outrider.cli.run.resolve import request_of
from outrider.cli.run.size_flags import Members
from outrider.cli.run.torchrun_flags import not_needed
from outrider.master.core.k8s.values.chaos import Armed, Fault
from outrider.master.core.spec import JobSpec


@pytest.fixture
def requested(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: Path) -> Any:
    """Parses a command line as `outrider run` does, up to the request."""
    for name in ("VIRTUAL_ENV", "PYTHON_EXEC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()

    def parse(*arguments: str) -> Request:
        flags = run.make_context("run", list(arguments)).params
        return request_of(flags["words"], flags["after_dashes"], flags, os.environ)

    return parse


def test_a_script_runs_as_under_torchrun(requested: Any) -> None:
    request = requested("train.py", "--lr", "0.1", "-m", "--", "a b")
    assert request.command == (sys.executable, "-u", "train.py", "--lr", "0.1", "-m", "--", "a b")
    assert request.name == "train"
    assert request.nproc is None


def test_a_module_runs_as_under_torchrun(requested: Any) -> None:
    request = requested("-m", "pkg.train_it", "--job", "x")
    assert request.command == (sys.executable, "-u", "-m", "pkg.train_it", "--job", "x")
    assert request.name == "train-it"


def test_a_command_after_dashes_is_left_as_it_is(requested: Any) -> None:
    request = requested("--nnodes", "2", "--", "bash", "-c", "python 'train.py'")
    assert request.command == ("bash", "-c", "python 'train.py'")
    assert not request.no_python


def test_dashes_among_the_scripts_arguments_belong_to_the_script(requested: Any) -> None:
    assert requested("train.py", "a", "--", "b").command[2:] == ("train.py", "a", "--", "b")


@pytest.mark.parametrize("spelling", ["--nproc-per-node", "--nproc_per_node"])
@pytest.mark.parametrize("equals", [True, False])
def test_both_of_torchruns_spellings_are_accepted(requested: Any, spelling: str, equals: bool) -> None:
    flags = [f"{spelling}=2", "--nnodes=3:4"] if equals else [spelling, "2", "--nnodes", "3:4"]
    request = requested(*flags, "--max_restarts", "0", "train.py")
    assert (request.nproc, request.members, request.max_restarts) == (2, Members(3, 4), 0)


def test_the_processors_can_be_counted(requested: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    here = len(os.sched_getaffinity(0))
    assert requested("--nproc-per-node", "cpu", "train.py").nproc == here
    assert requested("--nproc-per-node", "auto", "train.py").nproc == here


def test_the_visible_gpus_are_counted(requested: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    assert requested("--nproc-per-node", "gpu", "train.py").nproc == 3
    assert requested("--nproc-per-node", "auto", "train.py").nproc == 3


def test_an_active_virtual_environment_runs_the_script(
    requested: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "venv"))
    assert requested("train.py").command[0] == str(python)
    monkeypatch.setenv("PYTHON_EXEC", sys.executable)
    assert requested("train.py").command[0] == sys.executable
    assert requested("--python", str(python), "train.py").command[0] == str(python)


def test_the_node_check_is_requested_by_dlrovers_flags_in_both_spellings(requested: Any) -> None:
    assert not requested("train.py").network_check
    flags = ("--network_check", "--exclude-straggler", "--nnodes", "2", "--chaos", "bad-node=slow@rank_index=1")
    request = requested(*flags, "train.py")
    assert (request.network_check, request.exclude_straggler) == (True, True)
    assert request.chaos == (Armed(Fault("bad-node", "slow"), 1),)


def test_the_flags_for_data_are_off_by_default(requested: Any) -> None:
    assert (requested("train.py").elastic_data, requested("train.py").keep_global_batch) == (False, False)
    request = requested("--elastic_data", "--keep-global-batch", "train.py")
    assert (request.elastic_data, request.keep_global_batch) == (True, True)


def test_the_save_signal_is_one_that_a_script_can_handle(requested: Any) -> None:
    assert requested("train.py").save_signal == ""
    assert requested("--save-signal", "usr1", "train.py").save_signal == "SIGUSR1"
    with pytest.raises(click.UsageError, match="--save-signal SIGTERM: "):
        requested("--save-signal", "SIGTERM", "train.py")


def test_a_program_without_python_runs_once_a_rank(requested: Any) -> None:
    request = requested("--no-python", "true", "x")
    assert request.command == ("true", "x")
    assert request.no_python


def test_torchruns_rendezvous_flags_are_accepted_and_named(requested: Any) -> None:
    rendezvous = ("--rdzv_backend=c10d", "--rdzv-endpoint=a:1", "--rdzv_id=7", "--rdzv-conf=k=v", "--standalone")
    static = ("--master_addr=a", "--master-port=2", "--node_rank=0", "--local-addr=a")
    others = ("-t", "3", "--monitor_interval", "5")
    needless, ineffective = not_needed(run.make_context("run", [*rendezvous, *static, *others, "train.py"]).params)
    for name in ("rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv-conf", "master-addr", "node-rank", "standalone"):
        assert f"--{name}" in needless
    for name in ("tee", "monitor-interval"):
        assert f"--{name}" in ineffective
    assert not_needed(run.make_context("run", ["train.py"]).params) == []


def test_a_job_without_a_name_avoids_the_names_of_running_jobs(requested: Any, running_job: Any) -> None:
    running_job("train")
    assert requested("train.py").name == "train-2"


def test_odd_script_names_make_job_names(requested: Any, tmp_path: Path) -> None:
    (tmp_path / "My Script_V2.py").touch()
    (tmp_path / "....py").touch()
    assert requested("My Script_V2.py").name == "my-script-v2"
    assert requested("....py").name == "job"
    assert requested("--", "bash", "-c", "true").name == "bash"
    assert requested("--", "bash", "x/train.py").name == "train"


def test_the_sizes_of_an_inner_torchrun_count(requested: Any) -> None:
    request = requested("--", "torchrun", "--nnodes=2", "--nproc_per_node", "2", "--rdzv-backend", "c10d", "train.py")
    assert request.members == Members(2, 2)
    assert request.nproc is None
    assert request.needless == ("--rdzv-backend",)
    assert (
        requested("--", sys.executable, "-m", "torch.distributed.run", "--nnodes", "1:3", "train.py").members.most == 3
    )
    assert requested("--nproc-per-node", "2", "--", "torchrun", "--nproc-per-node=2", "train.py").nproc == 2


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (["--nproc-per-node", "4"], ["--nproc_per_node=2"]),
        (["--nnodes", "4"], ["--nnodes", "2:4"]),
        (["--max-restarts", "3"], ["--max-restarts=0"]),
    ],
)
def test_the_error_for_sizes_that_contradict_an_inner_launcher_shows_both(
    requested: Any, ours: list[str], theirs: list[str]
) -> None:
    with pytest.raises(UserError) as refused:
        requested(*ours, "--", "torchrun", *theirs, "train.py")
    assert " ".join(ours) in refused.value.message
    assert theirs[-1].rpartition("=")[2] in refused.value.message
    assert "torchrun" in refused.value.message


def test_an_inner_size_out_of_range_is_named(requested: Any) -> None:
    with pytest.raises(UserError, match="--nnodes 0 of the command after --: must be 1 <= MIN"):
        requested("--", "torchrun", "--nnodes", "0", "train.py")


def test_a_job_with_parameter_servers_has_workers_and_an_address_for_each(requested: Any) -> None:
    request = requested("--ps", "2", "--workers", "1:3", "--chief", "--evaluator", "train.py")
    assert (request.members, request.most_members) == (Members(1, 3), 7)
    fields = ps_flags.spec_fields(request.tasks, {"TF_CONFIG": "{}"})
    addresses = [*fields["ps"], *fields["workers"], fields["chief"]]
    assert len(set(addresses)) == 6
    assert (len(fields["ps"]), len(fields["workers"]), fields["has_evaluator"]) == (2, 3, True)
    assert fields["tf_config_from"] == "the environment of `outrider run`"


def test_a_job_without_flags_for_parameter_servers_is_an_all_reduce_job(requested: Any) -> None:
    assert requested("train.py").tasks is None


@pytest.mark.parametrize(
    "words",
    [
        ("/dev/stdin",),
        ("/dev/fd/0", "--lr", "1"),
        ("--", "python3", "-"),
        ("--", "python3", "-u"),
        ("--", "python3", "-u", "/dev/stdin"),
        ("--", "bash"),
        ("--", "sh", "-e", "-s"),
    ],
)
def test_a_script_on_the_standard_input_is_refused(requested: Any, words: tuple[str, ...]) -> None:
    read, write = os.pipe()
    kept = os.dup(0)
    os.dup2(read, 0)
    try:
        with pytest.raises(UserError, match="each rank reads the script again, and ranks have no standard input"):
            requested("--nnodes", "2", *words)
    finally:
        os.dup2(kept, 0)
        for each in (read, write, kept):
            os.close(each)


@pytest.mark.parametrize(
    "words", [("python3", "--version"), ("python3", "-m", "this"), ("bash", "-c", "true"), ("cat",)]
)
def test_a_command_that_reads_no_script_from_the_standard_input_is_accepted(
    requested: Any, words: tuple[str, ...]
) -> None:
    assert requested("--", *words).command == words


@pytest.mark.parametrize(
    ("words", "threads"),
    [
        (("train.py",), 0),
        (("--nnodes", "4", "train.py"), 4),
        (("--nnodes", "1:4", "--nproc-per-node", "2", "train.py"), 2),
        (("--nproc-per-node", "3", "train.py"), 5),
        (("--nnodes", "2", "--nproc-per-node", "16", "train.py"), 1),
        (("--nnodes", "2", "--", "torchrun", "--nproc-per-node", "2", "train.py"), 4),
        (("--isolate", "--member-cpus", "2.5", "train.py"), 2),
        (("--nnodes", "2", "--isolate", "--member-cpus", "0.5", "train.py"), 1),
        (("--ps", "1", "--workers", "2", "train.py"), 0),
    ],
)
def test_ranks_share_the_machines_cores(
    requested: Any, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], threads: int
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(16)))
    assert requested(*words).threads == threads
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert requested(*words).threads == 0


def test_a_job_name_is_converted_to_a_dns_label(requested: Any, home: Path) -> None:
    assert requested("--job", "f_segv", "train.py").name == "f-segv"
    assert requested("--job", "My Train", "train.py").name == "my-train"
    folder = home / "jobs" / "f-segv"
    folder.mkdir(parents=True)
    (folder / "lock").touch()
    assert job_dirs.existing("f_segv") == folder
    assert job_dirs.the_job("f_segv") == "f-segv"


def test_no_flag_is_suggested_for_one_that_is_like_none(requested: Any) -> None:
    with pytest.raises(click.NoSuchOption) as found:
        requested("--dry-run", "train.py")
    assert not list(found.value.possibilities or ())


@pytest.mark.parametrize(("silent", "replace"), [(1, 20), (3, 20), (10, 20), (11, 22), (60, 120), (3600, 7200)])
def test_a_member_that_is_left_out_has_time_to_come_back(
    requested: Any, tmp_path: Path, silent: int, replace: int
) -> None:
    request = requested("--silent-after", str(silent), "train.py")
    spec = node_config(request, tmp_path, lambda *_: None).spec
    assert (spec.silent_after, spec.replace_after) == (silent, replace)


def test_flags_for_a_field_of_the_job_spec_have_its_type() -> None:
    theirs, ours = get_type_hints(JobSpec), get_type_hints(Request)
    taken = {each.name: each.metadata["spec"] for each in flags_of(Request) if each.metadata["spec"]}
    assert len(taken) > 10
    for name, to in taken.items():
        kind = theirs[name if to is True else to]
        assert ours[name] in (kind, kind | None), name
