"""The trainer's command.

It is either a Python script or module, which is run as torchrun would run it (`python -u SCRIPT ARGS`, or `-m`), or any
command after `--`, which may be another launcher with flags of its own.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from outrider.cli import job_dirs
from outrider.cli.errors import UserError
from outrider.cli.run.request import Request
from training_hooks.command import invocation
from training_hooks.command.shell_parser import SHELLS, line_of
from training_hooks.command.torchrun_args import is_python

NO_INPUT = "ranks have none, and each of them reads the script anew; write it to a file, and give that"
SAYS_ITSELF = {"-h", "--help", "-V", "-VV", "--version"}
"""Options with which an interpreter reads no script."""


def trainer_command(
    words: tuple[str, ...], after_dashes: bool, request: Request, environ: Mapping[str, str]
) -> tuple[str, ...]:
    """What is run once per member, or an error that says why it cannot be."""
    if after_dashes:
        return _any_command(words, request, environ)
    return _script_command(words[0], words[1:], request, environ)


def trainer_python(environ: Mapping[str, str], chosen: str | None = None) -> str:
    """The script's Python: --python, PYTHON_EXEC as under torchrun, an active virtual environment's, else ours."""
    asked = chosen or environ.get("PYTHON_EXEC")
    if asked:
        found = shutil.which(asked, path=environ.get("PATH"))
        if not found:
            raise UserError(f"{'--python' if chosen else 'PYTHON_EXEC'} {asked}: there is no such program")
        return found
    active = Path(environ.get("VIRTUAL_ENV") or "/nonexistent") / "bin" / "python"
    return str(active) if os.access(active, os.X_OK) else sys.executable


def _script_command(
    script: str, arguments: tuple[str, ...], request: Request, environ: Mapping[str, str]
) -> tuple[str, ...]:
    """The command that runs a script or a module, unbuffered as under torchrun."""
    if request.no_python:
        if request.module:
            raise UserError("--no-python and --module exclude each other")
        return (_program(script, environ), *arguments)
    python = trainer_python(environ, request.python)
    if request.module:
        return (python, "-u", "-m", script, *arguments)
    _check_script(script)
    return (python, "-u", script, *arguments)


def _check_script(script: str) -> None:
    """What Python could not even open is refused here: at the ranks it would look like a fault, three times over."""
    path = Path(script)
    if not script or not path.exists():
        hint = f"; to run a command, write: outrider run -- {script} ..." if script and shutil.which(script) else ""
        raise UserError(f"there is no script {script!r} (looked in {job_dirs.here()}){hint}")
    _check_no_stream(script)
    if path.is_dir() and not (path / "__main__.py").exists():
        raise UserError(f"{script} is a folder without a __main__.py; SCRIPT is a Python file (a module: -m NAME)")
    if not os.access(path, os.R_OK):
        raise UserError(f"the script {script} cannot be read: permission denied")


def _any_command(command: tuple[str, ...], request: Request, environ: Mapping[str, str]) -> tuple[str, ...]:
    """A command after `--` as it is, once its program is known to exist."""
    if request.module or request.python:
        flag = "--module" if request.module else "--python"
        raise UserError(f"{flag} belongs to a script; after -- the command says itself how it is run")
    name, words = os.path.basename(command[0]), list(command)
    called = invocation.parse(words) if is_python(name) else None
    reads_none = name in SHELLS and line_of(words) == (None, [])
    if not set(words) & SAYS_ITSELF and (reads_none or (called is not None and called.kind == "stdin")):
        raise UserError(f"{' '.join(command)!r} reads its script from the standard input: {NO_INPUT}")
    if called is not None and called.kind == "script":
        _check_no_stream(called.target)
    return (_program(command[0], environ), *command[1:])


def _check_no_stream(script: str) -> None:
    path = Path(script)
    if path.exists() and not path.is_file() and not path.is_dir():
        raise UserError(f"{script} is no file: {NO_INPUT}")


def _program(name: str, environ: Mapping[str, str]) -> str:
    """A program as it was named, or, where PATH has none, that of the trainer's environment (its torchrun)."""
    if shutil.which(name, path=environ.get("PATH")):
        return name
    beside = Path(trainer_python(environ)).parent / name
    if os.sep in name or not os.access(beside, os.X_OK):
        raise UserError(f"there is no program {name!r} that can be executed")
    return str(beside)
