"""What a template imports early, and what the hooks touch of torch."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import sys
import time
from pathlib import Path

import pytest

import training_hooks
from training_hooks.command import invocation
from training_hooks.template import import_analysis, preimport, rank_env_audit


def first_stop(source: str) -> int | None:
    """The first line of a top level that could change what a later import means."""
    names = import_analysis.Names()
    names.meaning.update(os="os", sys="sys", torch="torch", argparse="argparse", np="numpy")
    for node in ast.parse(source).body:
        if import_analysis.environment_assignment(node, names) is None and not names.allows(node):
            return node.lineno
    return None


@pytest.mark.parametrize(
    "source",
    [
        "x = 1\ny = [x, 'a', {'b': x + 2}]",
        "parser = argparse.ArgumentParser()\nparser.add_argument('--x', type=int)\nargs = parser.parse_args()",
        "torch.manual_seed(0)\ntorch.backends.cudnn.benchmark = True\nrng = np.random.default_rng(3)",
        "class Net(torch.nn.Module):\n    size: int = 3\n    @property\n    def x(self): return anything()",
        "if sys.version_info > (3, 0):\n    z = 1\nelse:\n    z = 2",
        "os.environ['A'] = 'b'\nos.environ.setdefault('C', 'd')",
        "f = lambda: unknown()",
    ],
)
def test_harmless_statements_do_not_end_the_reading(source: str) -> None:
    assert first_stop(source) is None


@pytest.mark.parametrize(
    "source",
    [
        "sys.path.insert(0, '/x')",
        "os.environ['A'] = value()",
        "os.environ.update(a='b')",
        "os.chdir('/')",
        "exec('import x')",
        "unknown()",
        "def print(x): pass\nprint(1)",
        "class A(unknown()): pass",
        "@unknown\ndef f(): pass",
        "x = [unknown() for _ in range(3)]",
        "sys.modules['numpy'] = None",
        "def f(x=unknown()): pass",
        "os.environ = {}",
    ],
)
def test_what_could_change_an_import_ends_the_reading(source: str) -> None:
    assert first_stop(source) == len(source.splitlines()) or source.startswith(("@", "class", "def f"))
    assert first_stop(source) is not None


class Refused(Exception):
    pass


def early_of(folder: Path, source: str) -> preimport.Early:
    script = folder / "train.py"
    script.write_text(source)
    called = invocation.Invocation("script", str(script), [], [])

    def begin_again(culprit: str, what: str) -> None:
        raise Refused(culprit, what)

    return preimport.Early(called, {}, begin_again)


def own_imports(pass_: preimport.Early) -> list[str]:
    """Without those behind the script's back, which are done where this process has torch from another test."""
    return [name for name in pass_.done if name not in preimport.BEHIND]


def test_imports_are_done_in_order_up_to_the_first_doubt(tmp_path: Path) -> None:
    pass_ = early_of(tmp_path, "import json\nfrom os import path\nimport sys\nsys.path.append('x')\nimport csv\n")
    pass_.run()
    assert own_imports(pass_) == ["json", "os", "sys"]
    assert pass_.notes == ["early imports end at line 4, which could change what an import means"]


def test_a_user_s_module_is_read_and_not_run(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import json\nx = 1\nsys = unknown()\n")
    pass_ = early_of(tmp_path, "import mine\nimport csv\n")
    pass_.run()
    assert own_imports(pass_) == ["json"]
    assert "mine" not in sys.modules


def test_the_handlers_of_a_failed_import_are_followed(tmp_path: Path) -> None:
    source = "try:\n    import nothing_like_it\nexcept ImportError:\n    import json\nimport csv\n"
    pass_ = early_of(tmp_path, source)
    pass_.run()
    assert own_imports(pass_) == ["json", "csv"]


def test_denied_packages_are_left_to_the_workers(tmp_path: Path) -> None:
    pass_ = early_of(tmp_path, "import jax\nimport json\n")
    pass_.run()
    assert (own_imports(pass_), pass_.notes) == (["json"], ["jax is imported by each worker process"])


def test_the_path_and_the_environment_are_afterwards_as_before(tmp_path: Path) -> None:
    path, environment = list(sys.path), set(os.environ.items())
    early_of(tmp_path, "import json\nimport csv\n").run()
    assert set(os.environ.items()) ^ environment == set()
    assert (list(sys.path), type(os.environ)) == (path, type(os.environb))


def test_what_torch_sets_behind_the_back_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch._dynamo does with TORCHINDUCTOR_CACHE_DIR."""
    monkeypatch.setitem(sys.modules, "torch", sys)
    monkeypatch.setattr(preimport.Early, "_load", lambda _self, dotted: os.environ.update({dotted: "set"}))
    early_of(tmp_path, "x = 1\n").run()
    assert set(preimport.BEHIND) & set(os.environ) == set()


@pytest.mark.parametrize(
    "look",
    ["os.environ.get('RANK')", "'WORLD_SIZE' in os.environ", "os.getenv('MASTER_ADDR', 'x')", "os.getenvb(b'RANK')",
     "os.environ.setdefault('LOCAL_RANK', '0')", "os.environ.pop('TORCHELASTIC_RUN_ID', None)"],
)  # fmt: skip
def test_every_look_at_a_rank_is_noticed_and_others_are_not(look: str) -> None:
    seen: list[str] = []
    with rank_env_audit.Watch(seen.append):
        assert dict(os.environ)
        os.environ.get("HOME")
        assert not seen
        eval(look)
    assert set(seen) <= rank_env_audit.NAMES
    assert seen
    os.environ.pop("LOCAL_RANK", None)
    assert seen == [seen[0]] * len(seen)


def test_a_look_at_the_gpus_counts_where_members_share_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    seen: list[str] = []
    with rank_env_audit.Watch(seen.append):
        assert os.environ.get("CUDA_VISIBLE_DEVICES") == "0,1"
    assert not seen
    monkeypatch.setenv("OUTRIDER_GPUS", "0,1;2,3")
    with rank_env_audit.Watch(seen.append):
        assert dict(os.environ)
        assert not seen
        os.environ.get("CUDA_VISIBLE_DEVICES")
    assert set(seen) == {"CUDA_VISIBLE_DEVICES"}
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"


def test_a_copy_made_during_an_import_holds_no_rank() -> None:
    os.environ["ROLE_NAME"] = "of the container"
    try:
        with rank_env_audit.Watch(lambda name: None):
            assert "ROLE_NAME" not in dict(os.environ)
        assert os.environ["ROLE_NAME"] == "of the container"
    finally:
        del os.environ["ROLE_NAME"]


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["python", "-u", "-X", "dev", "a b.py", "-m", "x"], ("script", "a b.py", ["-m", "x"])),
        (["python", "-um", "pkg.mod", "--b"], ("module", "pkg.mod", ["--b"])),
        (["python", "-Wignore", "-c", "print()", "x"], ("code", "print()", ["x"])),
        (["python", "-mpkg"], ("module", "pkg", [])),
        (["python"], ("stdin", "-", [])),
        (["python", "--check-hash-based-pycs", "never", "t.py"], ("script", "t.py", [])),
    ],
)
def test_a_command_line_is_read_as_python_reads_it(argv: list[str], expected: tuple[str, str, list[str]]) -> None:
    called = invocation.parse(argv)
    assert (called.kind, called.target, called.arguments) == expected


def test_threads_that_end_at_a_fork_are_no_import_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenBLAS's pool, which torch brings along by numpy: beside a package that leaves a thread, torch was to blame."""
    site = tmp_path / "site-packages"
    site.mkdir()
    (site / "pooled.py").write_text(
        "import os, threading\n"
        "ends = threading.Event()\n"
        "pool = [threading.Thread(target=ends.wait, daemon=True) for _ in range(3)]\n"
        "[each.start() for each in pool]\n"
        "os.register_at_fork(before=lambda: (ends.set(), [each.join() for each in pool]))\n"
    )
    (site / "lasting.py").write_text(
        "import threading\nends = threading.Event()\nthreading.Thread(target=ends.wait, daemon=True).start()\n"
    )
    monkeypatch.syspath_prepend(str(site))
    (tmp_path / "job").mkdir()
    script = tmp_path / "job" / "train.py"
    script.write_text("import pooled\nimport lasting\n")
    pass_ = preimport.Early(invocation.parse(["python", str(script)]))
    try:
        pass_.run()
        assert pass_.tasks == {"lasting": 1}
    finally:
        for name in ("pooled", "lasting"):
            sys.modules.pop(name).ends.set()


PRIVATE = {
    "torch._dynamo": None,
    "torch.profiler._cupti_monitor": None,
    "torch._C._distributed_c10d": "_dump_fr_trace",
    "torch.utils.data.dataloader": "_BaseDataLoaderIter",
    "torch.distributed.distributed_c10d": "_get_default_store",
    "torch.distributed.checkpoint.state_dict": "_init_optim_state",
}
"""Every private name of torch that the hooks touch, as of 2.13; each is optional to them."""


RECORDED = ("record_id", "process_group", "collective_seq_id", "profiling_name", "time_created_ns", "input_sizes",
            "input_dtypes", "state", "retired")  # fmt: skip
"""What the hooks read of an entry of the Flight Recorder, whose format 2.10 is torch 2.13's."""


@pytest.mark.slow
@pytest.mark.xdist_group("torch")
def test_the_flight_recorder_s_entries_have_what_the_hooks_read_of_them() -> None:
    import torch
    import torch.distributed as dist

    from training_hooks.telemetry import flight_recorder

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        dist.all_reduce(torch.ones(1))
        for stacks in (True, False):
            entry = flight_recorder.record(stacks)[0][-1]
            assert set(RECORDED) <= set(entry)
            assert ("frames" in entry) == stacks
            assert abs(entry["time_created_ns"] - time.time_ns()) < 60 * 10**9, "the wall clock, in nanoseconds"
            assert entry["profiling_name"] == "gloo:all_reduce"
    finally:
        dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.xdist_group("torch")
def test_every_private_name_of_torch_that_the_hooks_touch_is_there() -> None:
    for module, name in PRIVATE.items():
        found = importlib.import_module(module)
        assert name is None or hasattr(found, name)
    from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

    assert "hook" in inspect.signature(register_optimizer_step_post_hook).parameters
    assert "_optimizer_step_post_hooks" in inspect.getsource(Optimizer.__init__)


def test_the_hooks_touch_no_other_private_name_of_torch() -> None:
    folder = Path(training_hooks.PACKAGE)
    text = "\n".join(path.read_text() for path in folder.rglob("*.py"))
    words = {word.strip("\"'(),.:;`") for word in text.split()}
    touched = {word for word in words if word.startswith("torch.") and "._" in word}
    assert touched <= set(PRIVATE)
