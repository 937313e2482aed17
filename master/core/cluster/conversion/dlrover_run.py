"""`dlrover-run` in a command becomes `torchrun`, which Outrider takes over; flags of the job go into its spec.

Also inside `bash -c`: the text is changed only between `dlrover-run` and the script, so what comes before and after
stays as it is, with its quotes and line ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from master.core.cluster.names import Document
from master.core.cluster.parts import entries

RUN = "dlrover-run"
MODULE = "dlrover.trainer.torch.elastic_run"
_RUN = re.compile(rf"(?<![\w./-])(?:{RUN}|(?P<python>python3? -m) {re.escape(MODULE)})(?![\w./-])")
_WORD = re.compile(r"""(?:\s|\\\n)*(?P<word>(?:"(?:\\.|[^"\\])*"|'[^']*'|\\[^\n]|[^\s"'\\])+)""")
SWITCHES = {"network_check", "exclude_straggler", "comm_perf_test", "auto_config", "auto_tunning", "auto_tuning",
            "save_at_breakpoint", "numa_affinity", "standalone", "no_python", "m", "module", "run_path",
            "enable_etcd_cas_delete"}  # fmt: skip
"""Flags without a value: DLRover's, and torchrun's, on which it builds."""
DROPPED = {
    "comm_perf_test": "the node check measures the network of each pair anyway",
    "auto_config": "sizes are the job's",
    "auto_tunning": "batch sizes and workers of a DataLoader are not tuned",
    "auto_tuning": "batch sizes and workers of a DataLoader are not tuned",
    "save_at_breakpoint": "checkpoints in memory outlive the processes (docs/checkpoints.md)",
    "accelerator": "devices are found by the trainer itself",
    "training_port": "a port is agreed on for each generation",
    "numa_affinity": "processes are not bound to NUMA nodes",
    "membind_policy": "processes are not bound to NUMA nodes",
    "precheck": "nodeCheck measures members before they train",
    "rdzv_conf": "the master tells the ranks where to meet; it waits as recovery.startPatience says",
    "rdzv_backend": "the master tells the ranks where to meet",
    "rdzv_endpoint": "the master tells the ranks where to meet",
    "rdzv_id": "the master tells the ranks where to meet",
    "standalone": "the master tells the ranks where to meet",
}


@dataclass(slots=True)
class Found:
    """Fields for the job's spec, and sentences."""

    spec: Document = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    is_there: bool = False
    sizes: tuple[str, str] | None = None
    """Of --nnodes, as they were written."""


def rewritten(container: Document, path: str) -> tuple[Document, Found]:
    """The container with torchrun in its command and args, and what has to go into the spec."""
    found, made = Found(), dict(container)
    for part in ("command", "args"):
        words = entries(container.get(part))
        if words:
            made[part] = _words([str(word) for word in words], f"{path}.{part}", found)
    return made, found


def _words(words: list[str], path: str, found: Found) -> list[str]:
    """As a list of words, or with one that a shell reads."""
    for number, word in enumerate(words):
        if word.rpartition("/")[2] == RUN:
            return [*words[:number], "torchrun", *_flags(words[number + 1 :], path, found)]
        if word == MODULE and number and words[number - 1] == "-m":
            return [*words[: number - 2], "torchrun", *_flags(words[number + 1 :], path, found)]
    return [_text(word, path, found) if _RUN.search(word) else word for word in words]


def _text(text: str, path: str, found: Found) -> str:
    match = _RUN.search(text)
    assert match is not None
    end = match.end()
    words: list[str] = []
    while word := _WORD.match(text, end):
        bare = word["word"]
        if not bare.startswith("-") and not _takes_next(words):
            break
        words.append(bare)
        end = word.end()
    kept = " ".join(["torchrun", *_flags(words, path, found)])
    rest = text[end:]
    return text[: match.start()] + kept + (_text(rest, path, found) if _RUN.search(rest) else rest)


def _takes_next(words: Sequence[str]) -> bool:
    """The last of these flags has its value in the next word."""
    if not words or not words[-1].startswith("-") or "=" in words[-1]:
        return False
    return _name(words[-1]) not in SWITCHES


def _name(flag: str) -> str:
    return flag.lstrip("-").partition("=")[0].replace("-", "_")


def _flags(words: Sequence[str], path: str, found: Found) -> list[str]:
    """The words that stay: flags of torchrun's, the script and its arguments."""
    found.is_there = True
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        if not word.startswith("-"):
            return [*kept, word, *rest]
        name, equals, value = word.lstrip("-").partition("=")
        name = name.replace("-", "_")
        given = [word]
        if not equals and name not in SWITCHES:
            value = next(rest, "")
            given.append(value)
        if not _moved(name, value.strip("\"'"), path, found):
            kept += given
    return kept


def _moved(name: str, value: str, path: str, found: Found) -> bool:
    """True where the flag is said in the spec now, or nowhere."""
    match name:
        case "network_check":
            found.spec.setdefault("nodeCheck", {})["enabled"] = True
        case "exclude_straggler":
            found.spec.setdefault("nodeCheck", {}).update(enabled=True, excludeStragglers=True)
        case "max_restarts":
            _number(found, "maxRestarts", value, f"{path}: --max_restarts")
        case "node_unit":
            _number(found, "nodeUnit", value, f"{path}: --node_unit")
        case "nnodes":
            least, _, most = value.partition(":")
            found.sizes = (least, most or least)
        case _ if name in DROPPED:
            found.notes.append(f"{path}: --{name} is left out: {DROPPED[name]}.")
        case _:
            return False
    return True


def _number(found: Found, field_name: str, value: str, what: str) -> None:
    if value.isdigit():
        found.spec[field_name] = int(value)
    else:
        found.notes.append(
            f"{what} is {value or 'nothing'}, which is known only when the pod runs: set spec.{field_name}."
        )


def variables(words: Any) -> Iterator[str]:
    """Environment variables that DLRover sets and these words name."""
    text = " ".join(str(word) for word in entries(words))
    for name in ("WORKER_NUM", "NODE_NUM", "NODE_RANK", "DLROVER_MASTER_ADDR", "ELASTIC_JOB_NAME"):
        if re.search(rf"\$\{{?{name}\b", text):
            yield name
