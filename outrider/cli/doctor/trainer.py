"""Checks of the trainer: its interpreter, torch, and how its script would start and restart.

The script is never run. Its imports are done as a template would do them, in a process of its own that ends after them
(`training_hooks.template.rehearsal`).
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import training_hooks
from outrider.cli.doctor.findings import Finding, ok, problem, warning
from outrider.cli.errors import UserError
from outrider.cli.run.gpus import Found, discovered
from outrider.cli.run.trainer_command import trainer_python
from outrider.cli.text import plural
from outrider.master.local.process_specs import without_ours
from training_hooks.command.invocation import parse
from training_hooks.command.plan import Plan, plan, shebang
from training_hooks.command.torchrun_args import is_python
from training_hooks.template import rehearsal

SECONDS = 150.0
"""Seconds for one start of the interpreter with all imports."""
OLDEST = (3, 8)
ABOUT = """
import sys, json
try:
    import importlib.util as util
    torch = util.find_spec("torch") is not None
except ImportError:
    torch = False
print(json.dumps({"version": list(sys.version_info[:3]), "torch": torch, "path": sys.executable}))
"""
TORCH = """
import json, torch
cuda = torch.cuda
print(json.dumps({"torch": torch.__version__, "built": torch.version.cuda or torch.version.hip or "",
                  "gpus": cuda.device_count() if cuda.is_available() else 0}))
"""
EXECUTED = "the program was executed"
FORK, SCRIPT = "restarts", "script"
KEEP_OUT = "import it within the function that needs it, or leave it as it is: each restart then takes longer"


def python_of(command: Sequence[str], environ: Mapping[str, str]) -> str | None:
    """The interpreter of a command; None if it is not visible in it."""
    if not command:
        return trainer_python(environ)
    if is_python(os.path.basename(command[0])):
        return command[0]
    words = shebang(command[0], environ)
    return words[0] if words and is_python(os.path.basename(words[0])) else None


def checked(command: Sequence[str], environ: Mapping[str, str], folder: Path) -> Iterator[Finding]:
    """The findings about a command, or without one about the interpreter that a script would have."""
    try:
        python = python_of(command, environ)
    except UserError as error:
        yield problem("python", error.message, "name another one: --python PYTHON")
        return
    about = None if python is None else _json((python, "-c", ABOUT), environ, folder)
    if python is not None and about is None:
        yield problem("python", f"{python} does not run", "name another one: --python PYTHON")
        return
    if about is not None:
        version = ".".join(map(str, about["version"]))
        if tuple(about["version"]) < OLDEST:
            yield problem("python", f"{python} is Python {version}: each restart needs at least 3.8",
                          "use a newer Python for the script: --python PYTHON")  # fmt: skip
            return
        yield ok("python", f"the script's Python is {version} ({about['path']})")
    yield from _torch(python, about or {}, environ, folder, needed=not command)
    if command:
        yield from _started(plan(list(command), dict(environ)), python, environ, folder)


def _torch(
    python: str | None, about: dict[str, Any], environ: Mapping[str, str], folder: Path, needed: bool
) -> Iterator[Finding]:
    if python is None:
        return
    if not about["torch"]:
        yield warning("torch", f"{python} has no torch",
                      "install it there, or name the Python that has it: --python PYTHON, or activate its environment",
                      )  # fmt: skip
        return
    gpus = discovered()
    if not needed and not gpus.count:
        return  # the script's own imports show it, and an import of torch takes seconds
    found, why = _output((python, "-c", TORCH), environ, folder)
    try:
        seen = json.loads(found.splitlines()[-1])
    except (ValueError, IndexError):
        yield problem("torch", f"{python} cannot import torch: {_last_line(why)}", "repair or reinstall torch there")
        return
    yield from _devices(seen, gpus)


def _devices(seen: dict[str, Any], gpus: Found) -> Iterator[Finding]:
    if gpus.count and not seen["gpus"]:
        built = f"built for CUDA {seen['built']}" if seen["built"] else "built without CUDA"
        text = f"{seen['torch']}, {built}, sees none of the {plural(gpus.count, 'GPU')} of this machine"
        yield warning("torch", text, "install the build of torch for this driver (nvidia-smi shows its CUDA version)")
    else:
        yield ok("torch", f"{seen['torch']}, {plural(seen['gpus'], 'GPU')}")


# -- how it starts and restarts ------------------------------------------------------------------------------------
def _started(how: Plan, python: str | None, environ: Mapping[str, str], folder: Path) -> Iterator[Finding]:
    argv = _of_the_script(how, python)
    if how.kind == "command":
        yield warning(FORK, f"{how.reason}, with all imports",
                      "for restarts without imports let the command be a Python script or torchrun")  # fmt: skip
    elif argv is None:
        yield ok(FORK, f"{how.reason}; its imports are visible only when it runs")
    elif not _loads_hooks(argv[0], environ, folder):
        yield warning(FORK, f"{argv[0]} does not load Outrider's hooks, so restarts start the command again",
                      "use a Python that reads PYTHONPATH and sitecustomize")  # fmt: skip
    else:
        yield from judged(rehearsed(argv, environ, folder), argv)


def _of_the_script(how: Plan, python: str | None) -> list[str] | None:
    """The command of one rank, if it can be read from the command: of a torchrun, that of its script."""
    if how.kind == "python":
        return list(how.argv)
    if how.kind == "takeover" and python is not None and how.inner is not None and not how.inner.no_python:
        return [python, "-u", "-m", how.module] if how.module else [python, "-u", str(how.script)]
    return None


def judged(found: dict[str, Any], argv: Sequence[str]) -> Iterator[Finding]:
    """The findings about a rehearsal's answer."""
    if why := found.get("refused"):
        yield problem(SCRIPT, str(why), "correct the script or its environment: each rank would end like this")
        return
    if why := found.get("unchecked"):
        yield warning(SCRIPT, f"its imports could not be checked: {why}", "run it once without Outrider")
        return
    torch = found.get("torch") or ""
    yield ok(SCRIPT, f"{parse(list(argv)).target} can be imported" + (f", with torch {torch}" if torch else ""))
    for name, why in (found.get("left_out") or {}).items():
        yield warning(FORK, f"each rank imports {name} itself at every restart: {why}", KEEP_OUT)
    threads, unsafe = found.get("threads") or {}, found.get("unsafe") or ""
    if unsafe and threads and "thread" in unsafe:
        name = max(threads, key=lambda each: int(threads[each])).partition(".")[0]
        yield warning(FORK, f"each rank imports {name} itself at every restart: after its import {unsafe}", KEEP_OUT)
    elif unsafe:
        text = f"restarts start Python again with all imports, because a process with them cannot be forked: {unsafe}"
        yield warning(FORK, text, "do this only in main()")
    else:
        yield from _early(found, torch)


def _early(found: dict[str, Any], torch: str) -> Iterator[Finding]:
    ends = next((note for note in found.get("notes") or () if note.startswith("early imports end")), "")
    done = plural(int(found.get("parked") or 0), "import")
    if ends and not torch:
        yield warning(FORK, f"{ends}: after {done}, the others are repeated by each rank at every restart",
                      "move the imports of torch and other large packages above that line")  # fmt: skip
    else:
        yield ok(FORK, f"a restart forks ranks from a process with {done} done ({found.get('seconds', 0):.1f} s saved)")


def rehearsed(argv: Sequence[str], environ: Mapping[str, str], folder: Path) -> dict[str, Any]:
    """The answer of a rehearsal: see `training_hooks.template.rehearsal`."""
    answer, _, why = _asked(argv, environ, folder)
    try:
        return dict(json.loads(answer))
    except (ValueError, TypeError):
        return {"refused": _last_line(why) or "its Python ended before its imports were done"}


def _loads_hooks(python: str, environ: Mapping[str, str], folder: Path) -> bool:
    """Whether this interpreter loads the hooks; otherwise a rehearsal would run the script."""
    answer, shown, _ = _asked((python, "-c", f"print({EXECUTED!r})"), environ, folder)
    return bool(answer) and EXECUTED not in shown


def _asked(argv: Sequence[str], environ: Mapping[str, str], folder: Path) -> tuple[bytes, str, str]:
    """The answer of a rehearsal, and what it wrote to both streams."""
    reading, writing = os.pipe()
    try:
        with tempfile.TemporaryDirectory(prefix="outrider-doctor-") as volume:
            marks = {"OUTRIDER_DIR": volume, rehearsal.VARIABLE: str(writing)}
            shown, errors = _output(argv, {**_as_a_template(environ), **marks}, folder, (writing,))
        os.close(writing)
        os.set_blocking(reading, False)  # a process that an import has left behind may keep the other end open
        try:
            return os.read(reading, 1 << 16), shown, errors
        except BlockingIOError:
            return b"", shown, errors
    finally:
        os.close(reading)


def _as_a_template(environ: Mapping[str, str]) -> dict[str, str]:
    users = environ.get("PYTHONPATH")
    hooks = os.pathsep.join([training_hooks.HOOKS_PATH, *([users] if users else [])])
    return {**without_ours(environ), "PYTHONPATH": hooks, "OUTRIDER_TEMPLATE": "1"}


def _output(
    argv: Sequence[str], environ: Mapping[str, str], folder: Path, kept: tuple[int, ...] = ()
) -> tuple[str, str]:
    """What a command wrote to both streams; it has no input."""
    try:
        done = subprocess.run(
            list(argv), env=dict(environ), cwd=folder, capture_output=True, text=True, errors="replace",
            stdin=subprocess.DEVNULL, timeout=SECONDS, pass_fds=kept,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "", f"not done within {SECONDS:g} s"
    except OSError as error:
        return "", f"{argv[0]}: {error.strerror}"
    return done.stdout, done.stderr


def _json(argv: Sequence[str], environ: Mapping[str, str], folder: Path) -> dict[str, Any] | None:
    found, _ = _output(argv, environ, folder)
    try:
        return dict(json.loads(found.splitlines()[-1]))
    except (ValueError, IndexError, TypeError):
        return None


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1][:300] if lines else ""
