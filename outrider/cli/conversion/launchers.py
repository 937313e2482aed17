"""Replaces `dlrover-run` in a command with `torchrun`, and moves the job's flags from it to the spec.

A command with torchrun stays unchanged, except for rendezvous flags with a variable that only another controller sets:
with an unset variable, `--node_rank $RANK` would take the next flag as its value.

Inside `bash -c`, the text is changed only between `dlrover-run` and the script; the text before and after keeps its
quotes and line ends.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from outrider.master.core.k8s.values.fields import entries
from outrider.master.core.k8s.values.names import Document

RUN = "dlrover-run"
MODULE = "dlrover.trainer.torch.elastic_run"
TORCHRUN = "torchrun"
TORCH_MODULES = ("torch.distributed.run", "torch.distributed.launch")
_MODULES = "|".join(map(re.escape, (MODULE, *TORCH_MODULES)))
_GAP = r"(?:\s|\\\n)+"
_RUN = re.compile(
    rf"(?<![\w.-])(?P<run>(?:[\w.~$@{{}}/-]*/)?(?:{RUN}|{TORCHRUN})"
    rf"|[\w.~$@{{}}/-]*python[\d.]*(?:{_GAP}-[^\sm]\S*)*{_GAP}-m{_GAP}(?:{_MODULES}))(?![\w./-])"
)
_WORD = re.compile(
    r"""(?:\s|\\\n)*(?P<word>(?:"(?:\\.|[^"\\])*"|'[^']*'|`[^`]*`|\$\((?:[^()]|\([^()]*\))*\)|\\[^\n]|[^\s"'`\\])+)"""
)
SWITCHES = {"network_check", "exclude_straggler", "comm_perf_test", "auto_config", "auto_tunning", "auto_tuning",
            "save_at_breakpoint", "numa_affinity", "standalone", "no_python", "m", "module", "run_path",
            "use_env", "virtual_local_rank", "h", "help"}  # fmt: skip
"""Flags without a value, of DLRover and of torchrun, which DLRover extends."""
RENDEZVOUS = (
    "rdzv_backend",
    "rdzv_endpoint",
    "rdzv_id",
    "node_rank",
    "master_addr",
    "master_port",
    "local_addr",
    "standalone",
)
SIZES = "the job's spec has the sizes"
DROPPED = {
    "comm_perf_test": "the node check always measures the network of each pair",
    "auto_config": SIZES,
    "auto_tunning": "batch sizes and workers of a DataLoader are not tuned",
    "auto_tuning": "batch sizes and workers of a DataLoader are not tuned",
    "save_at_breakpoint": "in-memory checkpoints survive the end of processes (docs/how-to/memory-checkpoints.md)",
    "accelerator": "the trainer finds its devices itself",
    "training_port": "each generation gets its own port",
    "numa_affinity": "processes are not bound to NUMA nodes",
    "membind_policy": "processes are not bound to NUMA nodes",
    "precheck": "nodeCheck tests members before they train",
    "ucp_device_type": "there is no universal checkpoint",
    "rdzv_conf": "the master chooses the rendezvous and waits for recovery.startPatience",
    **dict.fromkeys(RENDEZVOUS, "the master chooses the rendezvous"),
}


@dataclass(slots=True)
class Found:
    """The fields for the job's spec and the notes that come from a command."""

    spec: Document = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    is_there: bool = False
    sizes: tuple[str, str] | None = None
    """The two sizes in --nnodes, as text."""


def rewritten(container: Document, path: str) -> tuple[Document, Found]:
    """The container with torchrun in its command and args, and the fields for the spec."""
    found, made = Found(), dict(container)
    parts = {part: [str(word) for word in entries(container.get(part))] for part in ("command", "args")}
    command, args = parts.values()
    if args and _after_launcher(command):  # its flags may continue in args
        changed = _words([*command, *args], f"{path}.args", found)
        if changed != [*command, *args]:
            begins = _after_launcher(changed)
            made |= {"command": changed[:begins], "args": changed[begins:]}
        return made, found
    for part, words in parts.items():
        if words:
            made[part] = _words(words, f"{path}.{part}", found)
    return made, found


def _after_launcher(words: Sequence[str]) -> int:
    """The position after the launcher in words that no shell reads; 0 if there is no launcher."""
    names = (RUN, TORCHRUN, MODULE, *TORCH_MODULES)
    return next((at for at, word in enumerate(words, 1) if word.rpartition("/")[2] in names), 0)


def _words(words: list[str], path: str, found: Found) -> list[str]:
    """The words after the replacement, also if one of them is a text that a shell reads."""
    for number, word in enumerate(words):
        begin, name = number, word.rpartition("/")[2]
        if number and words[number - 1] == "-m" and word in (MODULE, *TORCH_MODULES):
            begin, name = _python(words, number), word
        if name in (RUN, MODULE):
            return [*words[:begin], TORCHRUN, *_flags(words[number + 1 :], path, found)]
        if name in (TORCHRUN, *TORCH_MODULES):
            return [*words[: number + 1], *_flags(words[number + 1 :], path, found, is_torchs=True)]
    return [_text(word, path, found) if _RUN.search(word) else word for word in words]


def _python(words: Sequence[str], module: int) -> int:
    """The position of the interpreter that runs the module, before its flags (python -u -m MODULE)."""
    flags = (at for at in range(module - 1, -1, -1) if not words[at].startswith("-"))
    return next(flags, module - 1)


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
    run, rest = match["run"], text[end:]
    is_torchs = run.endswith((TORCHRUN, *TORCH_MODULES))
    kept = _flags(words, path, found, is_torchs)
    call = (
        text[match.start() : end] if kept == words and is_torchs else " ".join([run if is_torchs else TORCHRUN, *kept])
    )
    return text[: match.start()] + call + (_text(rest, path, found) if _RUN.search(rest) else rest)


def _takes_next(words: Sequence[str]) -> bool:
    """Whether the value of the last flag is the next word."""
    if not words or not words[-1].startswith("-") or "=" in words[-1]:
        return False
    return _name(words[-1]) not in SWITCHES


def _name(flag: str) -> str:
    return flag.lstrip("-").partition("=")[0].replace("-", "_")


def _flags(words: Sequence[str], path: str, found: Found, is_torchs: bool = False) -> list[str]:
    """The words that stay: torchrun's flags, the script and its arguments."""
    found.is_there = found.is_there or not is_torchs
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
        value = value.strip("\"'")
        if not (_is_unset(name, value, path, found) if is_torchs else _moved(name, value, path, found)):
            kept += given
    return kept


def _is_unset(name: str, value: str, path: str, found: Found) -> bool:
    """Whether this is a flag of torchrun about sizes or the rendezvous whose value has a variable that is not set."""
    if name not in ("nnodes", *RENDEZVOUS) or "$" not in value:
        return False
    found.notes.append(f"{path}: --{name} {value} is not converted: {DROPPED.get(name, SIZES)}.")
    return True


def _moved(name: str, value: str, path: str, found: Found) -> bool:
    """Whether the flag was moved to the spec or left out, so that it is removed from the command."""
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
            found.notes.append(f"{path}: --{name} is not converted: {DROPPED[name]}.")
        case _:
            return False
    return True


def _number(found: Found, field_name: str, value: str, what: str) -> None:
    if value.isdigit():
        found.spec[field_name] = int(value)
    else:
        found.notes.append(
            f"{what} is {value or 'empty'}, whose value is known only in the running pod: set spec.{field_name}."
        )
