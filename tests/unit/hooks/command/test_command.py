"""How a command will be supervised, and the flags of its launcher, without running it."""

from __future__ import annotations

from pathlib import Path

import pytest

from training_hooks.command.plan import flags_inside, inner_flags, plan

PATH = {"PATH": "/usr/bin:/bin"}
LAUNCH = ["python", "-m", "torch.distributed.launch"]


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("python train.py --lr 0.1", "train.py"),
        ("python3.12 -u -W ignore train.py", "train.py"),
        ("/opt/venv/bin/python -X dev /app/train.py", "/app/train.py"),
        ("pypy3 train.py", "train.py"),
    ],
)
def test_a_python_script_becomes_the_template_in_place(command: str, script: str) -> None:
    found = plan(command.split(), PATH)
    assert (found.kind, found.mode, found.script, found.argv) == ("python", "fork", script, command.split())


def test_a_module_becomes_the_template_in_place() -> None:
    found = plan(["python", "-um", "pkg.train", "--module"], PATH)
    assert (found.kind, found.module, found.script) == ("python", "pkg.train", None)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("python -I train.py", "-I"),
        ("python -u -E train.py", "-E"),
        ("python -BS train.py", "-S"),
        ("python -c print(1)", "text"),
        ("python -", "text"),
        ("deepspeed train.py", "not Python"),
        ("python /usr/bin/deepspeed train.py", "DeepSpeed"),
        ("python -m deepspeed.launcher.runner train.py", "DeepSpeed"),
        ("accelerate test", "does not train"),
        ("./trainer --lr 1", "not Python"),
        ("nice ./trainer", "no Python that can be seen"),
        ("bash -c ./trainer", "names no Python trainer"),
    ],
)
def test_a_command_without_hooks_is_restarted_in_each_generation(command: str, reason: str) -> None:
    found = plan(command.split(), PATH)
    assert (found.kind, found.mode) == ("command", "relaunch")
    assert reason in found.reason


def test_an_option_with_a_value_is_not_read_as_letters() -> None:
    assert plan(["python", "-W", "error", "-Wignore::ImportWarning", "-XIES", "train.py"], PATH).kind == "python"


@pytest.mark.parametrize(
    ("command", "where"),
    [
        (["torchrun", "--nproc-per-node", "2", "train.py", "a b"], {"script": "train.py"}),
        (["/opt/venv/bin/torchrun", "-m", "pkg.train"], {"module": "pkg.train"}),
        (["python", "-m", "torch.distributed.run", "train.py"], {"script": "train.py"}),
        (["python3", "-u", "-m", "torch.distributed.launch", "--use-env", "train.py"], {"script": "train.py"}),
        (["python", "/opt/venv/bin/torchrun", "train.py"], {"script": "train.py"}),
    ],
)
def test_every_form_of_torchrun_is_replaced(command: list[str], where: dict[str, str]) -> None:
    found = plan(command, PATH)
    assert (found.kind, found.mode, found.argv) == ("takeover", "fork", command)
    assert {"script": found.script, "module": found.module} == {"script": None, "module": None} | where
    assert found.inner is not None


@pytest.mark.parametrize(
    "command",
    [
        ["torchrun", "--no-such-flag", "train.py"],
        ["torchrun", "--max-restarts", "many", "train.py"],
        ["torchrun"],
        ["torchrun", "--help"],
        ["torchrun", "--run-path", "train.py"],
        ["accelerate", "launch", "train.py"],
        ["python", "-m", "accelerate.commands.launch", "train.py"],
        ["python", "/opt/venv/bin/accelerate", "launch", "train.py"],
    ],
)
def test_a_launcher_that_cannot_be_parsed_is_watched(command: list[str]) -> None:
    assert plan(command, PATH).kind == "watch"


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("python train.py", "watch"),
        ("cd /app && exec python -u train.py", "watch"),
        ("(sleep 1 &) && torchrun --nproc_per_node=2 --max_restarts=3 train.py", "watch"),
        ("accelerate  launch train.py", "watch"),
        ("python3 \\\n  train.py", "watch"),
        ("python -m pkg.train", "watch"),
        ("# python train.py\n./trainer", "command"),
        ("mpirun -n 2 python train.py", "command"),
        ("deepspeed train.py", "command"),
        ("echo pythonic", "command"),
        ("", "command"),
    ],
)
def test_a_shells_line_is_watched_if_it_names_a_python_trainer(line: str, kind: str) -> None:
    assert plan(["bash", "-ec", line], PATH).kind == kind
    assert plan(["/bin/sh", "-o", "errexit", "-c", line, "name", "argument"], PATH).kind == kind


def test_a_shell_script_is_read_and_a_shebang_is_looked_through(tmp_path: Path) -> None:
    texts = {
        "watched": "#!/bin/sh\npython train.py\n",
        "plain": "#!/bin/bash -e\n./trainer\n",
        "script.py": "#!/usr/bin/env -S python3 -u\n",
        "perl": "#!/usr/bin/perl\n",
        "binary": "\x7fELF\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    found = {name: plan([str(tmp_path / name), "x"], PATH) for name in texts}
    kinds = {name: each.kind for name, each in found.items()}
    assert kinds == {
        "watched": "watch",
        "plain": "command",
        "script.py": "python",
        "perl": "command",
        "binary": "command",
    }
    assert found["script.py"].argv == ["python3", "-u", str(tmp_path / "script.py"), "x"]
    assert plan(["sh", str(tmp_path / "watched")], PATH).kind == "watch"
    assert plan(["sh", str(tmp_path / "nothing")], PATH).kind == "command"


def test_a_wrapper_is_looked_through_and_runs_once() -> None:
    found = plan(["numactl", "--membind", "0", "python", "train.py"], PATH)
    assert (found.kind, found.script, found.mode) == ("watch", "train.py", "fork")
    assert plan(["env", "A=1", "torchrun", "--nproc-per-node", "2", "train.py"], PATH).kind == "watch"
    assert plan(["tini", "--", "bash", "-c", "./trainer"], PATH).kind == "command"


# -- the inner launcher's flags ---------------------------------------------------------------------------------------


def test_flags_in_both_spellings_short_and_abbreviated_are_torchruns() -> None:
    for words in (
        ("--nproc-per-node", "2", "--max-restarts=3", "--nnodes=1:4"),
        ("--nproc_per_node=2", "--max_restarts", "3", "--nnodes", "1:4"),
        ("--nproc-per=2", "--max-r", "3", "--nn", "1:4"),
    ):
        found = inner_flags(["torchrun", *words, "-m", "pkg.train", "--nnodes", "9"], {})
        assert found is not None
        assert (found.nproc(), found.max_restarts, found.members()) == (2, 3, (1, 4))
        assert (found.module, found.script, found.arguments) == (True, "pkg.train", ["--nnodes", "9"])


def test_a_missing_flag_is_none_unless_an_environment_variable_sets_it() -> None:
    bare = inner_flags(["torchrun", "train.py"], {})
    assert bare is not None
    assert (bare.nproc(), bare.nproc_per_node, bare.max_restarts, bare.members()) == (1, None, None, None)
    reported = inner_flags(
        ["torchrun", "train.py"], {"PET_NPROC_PER_NODE": "4", "PET_NNODES": "2", "PET_MAX_RESTARTS": "0"}
    )
    assert reported is not None
    assert (reported.nproc(), reported.members(), reported.max_restarts) == (4, (2, 2), 0)


@pytest.mark.parametrize("count", ["auto", "gpu", "xpu", "0", "-1", "two"])
def test_a_count_that_only_torch_can_judge_is_none(count: str) -> None:
    found = inner_flags(["torchrun", f"--nproc-per-node={count}", "train.py"], {})
    assert found is not None
    assert found.nproc() is None


def test_rendezvous_and_ineffective_flags_are_named_as_torchrun_spells_them() -> None:
    words = "--rdzv_backend c10d --rdzv-id=7 --standalone --node_rank 1 -r 3 --tee 1 --log_dir x train.py"
    found = inner_flags(["torchrun", *words.split()], {})
    assert found is not None
    assert found.rendezvous == ["--rdzv-backend", "--rdzv-id", "--standalone", "--node-rank"]
    assert found.ignored == ["--log-dir", "--redirects", "--tee"]


@pytest.mark.parametrize(
    ("argv", "command"),
    [
        (["torchrun", "train.py", "a b"], ["PY", "-u", "train.py", "a b"]),
        (["torchrun", "-m", "pkg.train"], ["PY", "-u", "-m", "pkg.train"]),
        (["torchrun", "--no-python", "./trainer", "x"], ["./trainer", "x"]),
        ([*LAUNCH, "t.py", "x"], ["PY", "-u", "t.py", "--local-rank=${local_rank}", "x"]),
        ([*LAUNCH, "--use-env", "t.py"], ["PY", "-u", "t.py"]),
        ([*LAUNCH, "--use_env", "t.py"], ["PY", "-u", "t.py"]),
    ],
)  # fmt: skip
def test_the_command_of_a_rank_is_the_one_that_torchrun_runs(argv: list[str], command: list[str]) -> None:
    found = inner_flags(argv, {})
    assert found is not None
    assert found.command("PY") == command


@pytest.mark.parametrize(
    "argv",
    [["python", "train.py"], ["bash", "-c", "torchrun train.py"], ["torchrun", "--nnodes"], ["torchrunner", "x"]],
)
def test_without_readable_flags_there_are_none(argv: list[str]) -> None:
    assert inner_flags(argv, {}) is None


@pytest.mark.parametrize(
    ("line", "nproc", "script"),
    [
        ("(sleep 1 &) && torchrun --nproc_per_node=2 train.py 'a b'; echo x", 2, "train.py"),
        ("cd /app && exec python -m torch.distributed.run --nproc-per-node 3 -m pkg >log 2>&1", 3, "pkg"),
        ("A=1 /opt/bin/torchrun t.py|tee log", 1, "t.py"),
        ('torchrun --nproc-per-node=2 t.py "$@"', 2, "t.py"),
    ],
)
def test_the_flags_of_a_torchrun_in_a_shells_line_are_read(line: str, nproc: int, script: str) -> None:
    found = flags_inside(["bash", "-ec", line], {})
    assert found is not None
    assert (found.nproc(), found.script) == (nproc, script)


@pytest.mark.parametrize(
    "line",
    [
        "torchrun --nproc-per-node=$N t.py",
        "torchrun `flags` t.py",
        "echo 'torchrun t.py",
        "python t.py",
        "torchrun",
        "",
    ],
)
def test_words_that_the_shell_must_expand_are_not_read(line: str) -> None:
    assert flags_inside(["bash", "-c", line], {}) is None


def test_the_flags_of_a_torchrun_without_a_shell_are_read() -> None:
    found = flags_inside(["torchrun", "--nnodes=2:3", "train.py"], {})
    assert found is not None
    assert found.members() == (2, 3)
    assert flags_inside(["bash", "train.sh"], {}) is None


PLAIN, DISTRIBUTED = "import torch\n", "import torch.distributed\n"


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("python plain.py --lr 1", "command"),
        ('python plain.py "$@" > log', "command"),
        ("set -e\npython plain.py\npython -m package.plain\n", "command"),
        ("python plain.py && python trainer.py", "watch"),
        ("exec python -m package.trainer", "watch"),
        ("python imports_it.py", "watch"),
        ("cd elsewhere; python plain.py", "watch"),
        ("python $SCRIPT.py", "watch"),
        ("python nowhere.py", "watch"),
        ("python plain.py; torchrun plain.py", "watch"),
        ("python plain.py <<'EOF", "watch"),
    ],
)
def test_a_shells_line_whose_scripts_train_in_one_process_is_restarted_in_each_generation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, kind: str
) -> None:
    """No process in it would become a template, so a crash would end the command."""
    (tmp_path / "package").mkdir()
    for name, text in {"plain": PLAIN, "trainer": DISTRIBUTED, "imports_it": "from package import trainer\n"}.items():
        (tmp_path / f"{name}.py").write_text(text)
        (tmp_path / "package" / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert plan(["bash", "-c", line], PATH).kind == kind
    assert plan(["bash", "-c", line], PATH | {"OUTRIDER_SCRIPT": "plain.py"}).kind == "watch"
