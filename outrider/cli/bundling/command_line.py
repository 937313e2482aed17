"""What a bundle shows of a command line and an environment: names, and values of known flags only."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path

FILE = "command.json"
"""The name of the file in a job's folder that `note` writes."""
REDACTED = "<redacted>"
SAFE_FLAGS = frozenset((
    "nnodes", "nproc-per-node", "node-rank", "max-restarts", "monitor-interval", "rdzv-backend", "start-method",
    "master-port", "local-ranks-filter", "log-line-prefix-template", "num-processes", "num-machines", "machine-rank",
    "main-process-port", "mixed-precision", "num-gpus", "num-nodes",
    "members", "nproc", "min-members", "max-members", "replicas", "spares", "node-unit", "max-relaunches",
    "restart-decay", "relaunch-limit", "crash-loop", "silent-after", "replace-after", "stop-grace", "handler-grace",
    "save-grace", "grow-patience", "start-patience", "scaling", "min-gain", "scale-cooldown", "scale-evaluation",
    "hang-step", "hang-init", "hang-checkpoint", "hang-eval", "hang-detection", "isolation", "gpus", "ps", "workers",
    "epochs", "steps", "batch-size", "seed", "world-size", "lr", "learning-rate",
))  # fmt: skip
"""The flags of torchrun, of other launchers, of `outrider run` and some of scripts whose values are numbers or words of
a list."""
SAFE_VALUE = re.compile(
    r"\d{1,6}(:\d{1,6})?|\d{1,6}(\.\d{1,6})?(ms|s|m|h|d|%|e-?\d{1,2})?|auto|gpu|cpu|xpu|c10d|static|etcd|etcd-v2|spawn|fork|"
    r"forkserver|true|false|on|off|yes|no|none|throughput|efficiency|schedule|fp16|bf16|fp32|local|default"
)
PROGRAMS = re.compile(r"(python(\d(\.\d{1,2})?)?|outrider|torchrun|accelerate|deepspeed|bash|sh|env|exec|nice|nohup)\Z")
SUBCOMMANDS = frozenset(("run", "launch"))
MODULES = frozenset((
    "torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch", "deepspeed.launcher.runner",
))  # fmt: skip
SCRIPT = re.compile(r"[A-Za-z_][\w-]{0,60}\.(py|sh)\Z", re.ASCII)
FLAG = re.compile(r"--?(?P<name>[A-Za-z][\w.-]{0,60})(?P<equals>=.*)?\Z", re.ASCII | re.DOTALL)
VARIABLE = re.compile(r"[A-Za-z_]\w{0,120}\Z", re.ASCII)


def note(folder: Path) -> None:
    """Writes what a bundle may show of this process' command into the job's folder. A full disk is not an error."""
    with contextlib.suppress(OSError):
        (folder / FILE).write_text(
            json.dumps({"argv": shown(["outrider", *sys.argv[1:]]), "environment": names(os.environ)}) + "\n"
        )


def shown(argv: Iterable[str]) -> list[str]:
    """The command line without the values of flags that are not known to be safe, and without other words."""
    found: list[str] = []
    before = ""
    for word in argv:
        found.append(_shown(word, before))
        before = word
    return found


def _shown(word: str, before: str) -> str:
    if re.fullmatch(rf"-[A-Za-z]{REDACTED}", word):  # shown before
        return word
    flag = FLAG.match(word)
    if flag is not None and not re.fullmatch(r"-\d.*", word):
        return _flag(word, flag["name"], flag["equals"])
    if before == "-m" and word in MODULES:
        return word
    if (name := _flag_name(before)) and name in SAFE_FLAGS and SAFE_VALUE.fullmatch(word):
        return word
    program = word.rpartition("/")[2]
    if PROGRAMS.match(program) or SCRIPT.match(program) or word in SUBCOMMANDS:
        return program
    return REDACTED


def _flag(word: str, name: str, equals: str | None) -> str:
    if not word.startswith("--"):  # -x, or -xVALUE as some programs take it
        return word if len(word) == 2 else f"{word[:2]}{REDACTED}"
    if equals is None:
        return word
    value = equals[1:]
    is_safe = _normal(name) in SAFE_FLAGS and SAFE_VALUE.fullmatch(value)
    return f"--{name}={value if is_safe else REDACTED}"


def _flag_name(word: str) -> str:
    match = FLAG.match(word)
    return _normal(match["name"]) if match is not None and match["equals"] is None and word.startswith("--") else ""


def _normal(name: str) -> str:
    return name.replace("_", "-")


def names(environment: Iterable[str]) -> list[str]:
    """The names of environment variables, without their values."""
    return sorted(name for name in environment if VARIABLE.match(name))
