"""`dlrover-run` in a command becomes `torchrun`, which Outrider takes over; flags of the job go into its spec.

torchrun's own command stays as it is, but for flags of the rendezvous with a variable that another controller sets and
nobody sets here: `--node_rank $RANK` would take the next flag for its value.

Also inside `bash -c`: the text is changed only between `dlrover-run` and the script, so what comes before and after
stays as it is, with its quotes and line ends.
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
"""Flags without a value: DLRover's, and torchrun's, on which it builds."""
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
SIZES = "sizes are the job's"
DROPPED = {
    "comm_perf_test": "the node check measures the network of each pair anyway",
    "auto_config": SIZES,
    "auto_tunning": "batch sizes and workers of a DataLoader are not tuned",
    "auto_tuning": "batch sizes and workers of a DataLoader are not tuned",
    "save_at_breakpoint": "checkpoints in memory outlive the processes (docs/how-to/memory-checkpoints.md)",
    "accelerator": "devices are found by the trainer itself",
    "training_port": "a port is agreed on for each generation",
    "numa_affinity": "processes are not bound to NUMA nodes",
    "membind_policy": "processes are not bound to NUMA nodes",
    "precheck": "nodeCheck measures members before they train",
    "ucp_device_type": "there is no universal checkpoint",
    "rdzv_conf": "the master tells the ranks where to meet; it waits as recovery.startPatience says",
    **dict.fromkeys(RENDEZVOUS, "the master tells the ranks where to meet"),
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
    parts = {part: [str(word) for word in entries(container.get(part))] for part in ("command", "args")}
    command, args = parts.values()
    if args and _after_launcher(command):  # its flags may go on in args
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
    """Behind it, among words that are no shell's; 0 where there is none."""
    names = (RUN, TORCHRUN, MODULE, *TORCH_MODULES)
    return next((at for at, word in enumerate(words, 1) if word.rpartition("/")[2] in names), 0)


def _words(words: list[str], path: str, found: Found) -> list[str]:
    """As a list of words, or with one that a shell reads."""
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
    """Where the interpreter stands that runs the module: before its flags (python -u -m MODULE)."""
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
    said = (
        text[match.start() : end] if kept == words and is_torchs else " ".join([run if is_torchs else TORCHRUN, *kept])
    )
    return text[: match.start()] + said + (_text(rest, path, found) if _RUN.search(rest) else rest)


def _takes_next(words: Sequence[str]) -> bool:
    """The last of these flags has its value in the next word."""
    if not words or not words[-1].startswith("-") or "=" in words[-1]:
        return False
    return _name(words[-1]) not in SWITCHES


def _name(flag: str) -> str:
    return flag.lstrip("-").partition("=")[0].replace("-", "_")


def _flags(words: Sequence[str], path: str, found: Found, is_torchs: bool = False) -> list[str]:
    """The words that stay: flags of torchrun's, the script and its arguments."""
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
    """torchrun's flag about who meets where, whose value nobody knows here."""
    if name not in ("nnodes", *RENDEZVOUS) or "$" not in value:
        return False
    found.notes.append(f"{path}: --{name} {value} is left out: {DROPPED.get(name, SIZES)}.")
    return True


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
