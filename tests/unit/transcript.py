"""How a story is told for a reader: one line an event (>), an action (<) or a change of state (=), few fields each.

Left out is what says nothing: fields with their default, a generation that is the last one named, a reason that is that
of the line above (″). Left out too are the fields in QUIET, which are the same in all stories but one: a story that is
about them names their type in `shows` (`Start`), the field (`Start.tf_config`) or the kind of an Event (`JobFailed`). A
test holds that each of them is shown by some story.

    5.020 > worker-1 says Exited 1.1 (signal=9 step=20) alive=0
    5.020 < ! WorkerExited worker-1: Rank 1 on worker-1 was killed by SIGKILL.
    5.020 < to worker-0: Stop #3: ″

`!` is a warning, `#3` the number of an order, `1.1` a generation.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from outrider.runtime.journal import SECRET
from outrider.wire.ids import NO_GENERATION, Generation

Entry = tuple[float, str, Any]
QUIET = {
    # events and messages into the master
    "Began": ("unix_time",),
    "PodSeen": ("uid", "role"),
    "PodGone": ("uid",),
    "Hello": ("job", "member", "uid", "role", "probe_port", "address", "rung", "rung_reason", "trainer_pid"),
    "Ready": ("nproc", "rung", "rung_reason", "trainer_pid"),
    "Started": ("pids",),
    "Stopped": ("step_age",),
    "WorkerExit": ("local_rank", "pid", "error_frame", "traceback"),
    "Checked": ("kind", "cpu", "elapsed"),
    # out of it
    "Announce": ("detail",),
    "CreatePod": ("role", "wanted"),
    "DeletePod": ("uid",),
    "Start": (
        *("restart_count", "master_addr", "master_port", "group_rank", "group_world_size", "first_rank", "nproc"),
        *("world_size", "role", "role_first_rank", "role_world_size", "job", "neighbours", "tf_config", "worker_id"),
        "worker_num",
    ),
    "Check": ("port", "alone", "address"),
    "CheckPeer": ("address", "port"),
    "Probe": ("address", "port"),
    # a sidecar's own
    "StartWorkers": ("start",),
    "StopWorkers": ("grace", "handler_grace", "save_grace"),
    "HookConnected": ("rung_reason", "nproc", "running", "workers"),
    "Neighbour": ("address", "port"),
}
NEVER = {*SECRET, "status", "saved", "session"}
"""A status is a document of its own; whose a session is, is said instead."""


UNTOLD = {"SaveHistory"}
"""Actions that decide nothing and come with nearly every event of note."""


class Telling:
    """Of one story. `shown`: what it has shown of QUIET."""

    def __init__(self, shows: Collection[str] = ()) -> None:
        self.shows, self.shown = set(shows), set[tuple[str, str]]()
        self._members: dict[str, str] = {}
        self._generation: Generation | None = None
        self._reason = ""

    def lines(self, entries: Sequence[Entry], first: int = 0) -> list[str]:
        """Those from `first` on; who has which session is known from all."""
        for _now, _mark, what in entries:
            self._note(what)
        return [f"{now:8.3f} {mark} {what if isinstance(what, str) else self._told(what)}"
                for now, mark, what in entries[first:] if _kind(what) not in UNTOLD]  # fmt: skip

    def _note(self, what: Any) -> None:
        member = getattr(getattr(what, "message", None), "member", None)
        if hasattr(what, "session") and type(what).__name__ == "SidecarSaid" and _kind(what.message) == "Hello":
            self._members[what.session] = member

    # -- one line
    def _told(self, what: Any) -> str:
        kind, message, reason = _kind(what), getattr(what, "message", None), getattr(what, "reason", "")
        if kind in ("SidecarSaid", "MasterSaid"):
            who = self._members[what.session] if kind == "SidecarSaid" else "master"
            return (
                f"{who} says {self._words(message, without=('reason',))}{self._because(getattr(message, 'reason', ''))}"
            )
        if kind == "Announce":
            warning = "! " if what.severity == "warning" else ""
            return warning + self._words(what, what.kind, ("kind", "severity", "reason")) + self._because(reason)
        if kind == "Send":
            is_same = getattr(message, "reason", "") in ("", reason)
            words = self._words(message, without=("reason",) if is_same else (), generation=what.generation)
            return f"to {getattr(what, 'member', 'master')}: {words}{self._because(reason)}"
        whose = f" of {self._members[what.session]}" if hasattr(what, "session") else ""
        return self._words(what, kind + whose, ("reason",)) + self._because(reason)

    def _because(self, reason: str) -> str:
        again, self._reason = reason == self._reason, reason
        return "" if not reason else ": ″" if again else f": {reason}"

    def _of(self, generation: Generation) -> list[str]:
        if generation in (self._generation, NO_GENERATION):
            return []
        self._generation = generation
        return [str(generation)]

    def _words(
        self, what: Any, name: str = "", without: Sequence[str] = (), generation: Generation = NO_GENERATION
    ) -> str:
        words = [name or _kind(what)]
        if hasattr(what, "order"):
            words.append(f"#{what.order}")
        if hasattr(what, "member") and self._is_told(what, "member"):
            words += [str(what.member)] if what.member is not None else []
        words += self._of(getattr(what, "generation", generation))
        return " ".join([*words, *self._fields(what, {"order", "member", "generation", *without})])

    def _fields(self, what: Any, without: Collection[str]) -> Iterable[str]:
        for field in dataclasses.fields(what):
            content = getattr(what, field.name)
            if field.name in without or _is_default(field, content) or not self._is_told(what, field.name):
                continue
            if field.name == "detail":
                yield from (f"{name}={text}" for name, text in content)
            elif field.name == "body":
                yield f"({_digest(content)})"
            elif field.name in ("exits", "exit"):
                yield from (f"({' '.join(self._fields(each, ()))})" for each in _several(content))
            else:
                yield f"{field.name}={self._inner(content)}"

    def _is_told(self, what: Any, name: str) -> bool:
        kind = _kind(what)
        named = {kind, f"{kind}.{name}", getattr(what, "kind", "")}
        is_quiet = name in QUIET.get(kind, ()) and not named & self.shows
        if name in NEVER or is_quiet:
            return False
        if name in QUIET.get(kind, ()):
            self.shown.add((kind, name))
        return True

    def _inner(self, value: Any) -> str:
        if isinstance(value, float):
            return f"{value:g}" if abs(value) < 1e6 else f"{value:.3f}"
        if isinstance(value, tuple):
            return f"[{', '.join(map(self._inner, value))}]"
        if dataclasses.is_dataclass(value) and type(value).__dict__.get("__str__") is None:
            if hasattr(value, "member"):
                return " ".join([value.member, *self._fields(value, ("member",))])
            return f"({' '.join(self._fields(value, ()))})"
        return str(value) if not isinstance(value, str) or value.isidentifier() else repr(value)


def _kind(what: Any) -> str:
    return type(what).__name__


def _several(content: Any) -> tuple[Any, ...]:
    return content if isinstance(content, tuple) else (content,)


def _is_default(field: dataclasses.Field[Any], content: Any) -> bool:
    if field.default is not dataclasses.MISSING:
        return type(field.default) is type(content) and field.default == content
    return content is None or content == NO_GENERATION


def _digest(body: str) -> str:
    """What ranks answer, in a few words: the collective they are in, the line they are at."""
    found = []
    for rank in json.loads(body)["ranks"]:
        call = rank.get("collective")
        at = [line.strip() for line in rank.get("stack", "").splitlines() if "/data/" in line]
        said = f"{call['op']} {call['seq']} {call['state']}" if call else at[0] if at else "nothing"
        found.append(f"rank {rank['rank']}: {said}")
    return ", ".join(found)
