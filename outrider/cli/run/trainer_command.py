"""Makes the trainer's command from the words after the flags.

It is either a Python script or module, which runs as under torchrun (`python -u SCRIPT ARGS`, or `-m`), or any command
after `--`, which may be another launcher with flags of its own.
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

NO_INPUT = "each rank reads the script again, and ranks have no standard input; write it to a file, and give that"
INFORMATION_FLAGS = {"-h", "--help", "-V", "-VV", "--version"}
"""Options with which an interpreter reads no script."""


def trainer_command(
    words: tuple[str, ...], after_dashes: bool, request: Request, environ: Mapping[str, str]
) -> tuple[str, ...]:
    """The command that each member runs once, or an error that says why it cannot run."""
    if after_dashes:
        return _any_command(words, request, environ)
    return _script_command(words[0], words[1:], request, environ)


def trainer_python(environ: Mapping[str, str], chosen: str | None = None) -> str:
    """The Python of the script: --python, PYTHON_EXEC as under torchrun, an active virtual environment's, or ours."""
    requested = chosen or environ.get("PYTHON_EXEC")
    if requested:
        found = shutil.which(requested, path=environ.get("PATH"))
        if not found:
            raise UserError(f"{'--python' if chosen else 'PYTHON_EXEC'} {requested}: must be a program; not found")
        return found
    active = Path(environ.get("VIRTUAL_ENV") or "/nonexistent") / "bin" / "python"
    return str(active) if os.access(active, os.X_OK) else sys.executable


def _script_command(
    script: str, arguments: tuple[str, ...], request: Request, environ: Mapping[str, str]
) -> tuple[str, ...]:
    """The command that runs a script or a module, unbuffered as under torchrun."""
    if request.no_python:
        if request.module:
            raise UserError("--no-python and --module: must not be used together")
        return (_program(script, environ), *arguments)
    python = trainer_python(environ, request.python)
    if request.module:
        return (python, "-u", "-m", script, *arguments)
    _check_script(script)
    return (python, "-u", script, *arguments)


def _check_script(script: str) -> None:
    """Refuse a script that Python could not open: in the ranks it would look like a fault, three times over."""
    path = Path(script)
    if not script or not path.exists():
        hint = f"; to run a command, write: outrider run -- {script} ..." if script and shutil.which(script) else ""
        raise UserError(f"script {script!r} not found in {job_dirs.here()}{hint}")
    _check_no_stream(script)
    if path.is_dir() and not (path / "__main__.py").exists():
        raise UserError(
            f"SCRIPT {script}: must be a Python file, or a folder with a __main__.py; for a module give -m NAME"
        )
    if not os.access(path, os.R_OK):
        raise UserError(f"SCRIPT {script}: must be readable: permission denied")


def _any_command(command: tuple[str, ...], request: Request, environ: Mapping[str, str]) -> tuple[str, ...]:
    """A command after `--`, unchanged, after a check that its program exists."""
    if request.module or request.python:
        flag = "--module" if request.module else "--python"
        raise UserError(f"{flag}: must not be used with a command after --, only with a script")
    name, words = os.path.basename(command[0]), list(command)
    called = invocation.parse(words) if is_python(name) else None
    reads_none = name in SHELLS and line_of(words) == (None, [])
    if not set(words) & INFORMATION_FLAGS and (reads_none or (called is not None and called.kind == "stdin")):
        raise UserError(f"{' '.join(command)!r}: must not read its script from the standard input: {NO_INPUT}")
    if called is not None and called.kind == "script":
        _check_no_stream(called.target)
    return (_program(command[0], environ), *command[1:])


def _check_no_stream(script: str) -> None:
    path = Path(script)
    if path.exists() and not path.is_file() and not path.is_dir():
        raise UserError(f"SCRIPT {script}: must be a regular file: {NO_INPUT}")


def _program(name: str, environ: Mapping[str, str]) -> str:
    """The program as given, or, if PATH does not have it, that of the trainer's environment (its torchrun)."""
    if shutil.which(name, path=environ.get("PATH")):
        return name
    beside = Path(trainer_python(environ)).parent / name
    if os.sep in name or not os.access(beside, os.X_OK):
        raise UserError(f"program {name!r} not found, or not executable")
    return str(beside)
