"""What a bundle shows of documents: of a status, of Events, and of an ElasticJob with its pod templates.

Names of fields stay, numbers too, and texts if they are words of Outrider's source or stand where a name stands.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from outrider.cli.bundling import command_line
from outrider.master.core.k8s.values.fields import entries, mapping
from outrider.master.recording import vocabulary
from outrider.master.recording.scrubbing import Scrubber

NAMES = frozenset((
    "id", "job", "member", "node", "name", "namespace", "uid", "generation", "kind", "apiVersion", "image", "address",
    "saver", "time", "creationTimestamp", "resourceVersion",
))  # fmt: skip
"""The fields whose texts are names."""
KEY = re.compile(r"[A-Za-z_][\w.-]{0,120}(/[\w.-]{1,63})?\Z", re.ASCII)
QUANTITY = re.compile(r"\d{1,9}(\.\d{1,6})?([numkKMGTPE]i?|ms|s|m|h|%)?\Z")
OURS = "outrider.dev/"
EVENT_FIELDS = ("seq", "time", "kind", "severity", "member", "generation")


def status(document: Mapping[str, Any], scrubber: Scrubber) -> dict[str, Any]:
    """A status document, of whose texts only words and names are left."""
    found: dict[str, Any] = _of(document, "", scrubber)
    return found


def event(line: Mapping[str, Any], scrubber: Scrubber, *, with_reason: bool) -> dict[str, Any]:
    found = {name: _of(line.get(name), name, scrubber) for name in EVENT_FIELDS}
    return {**found, "reason": line.get("reason")} if with_reason else found


def event_of_the_cluster(event: Mapping[str, Any], scrubber: Scrubber) -> dict[str, Any]:
    """A Kubernetes Event in the form of ours, without its message."""
    line = {
        "time": event.get("lastTimestamp") or event.get("eventTime"),
        "kind": event.get("reason"),
        "severity": str(event.get("type")).lower(),
    }
    return {**{name: _of(each, name, scrubber) for name, each in line.items()}, "count": event.get("count")}


def elastic_job(document: Mapping[str, Any], scrubber: Scrubber) -> dict[str, Any]:
    """An ElasticJob: of labels and annotations the names, and values only of Outrider's own; of variables the names."""
    kept = {name: document.get(name) for name in ("apiVersion", "kind", "metadata", "spec", "status")}
    metadata = {name: each for name, each in mapping(kept["metadata"]).items() if name != "managedFields"}
    found: dict[str, Any] = _of({**kept, "metadata": metadata}, "", scrubber)
    return found


def _of(value: Any, key: str, scrubber: Scrubber) -> Any:
    if isinstance(value, dict):
        if key in ("labels", "annotations"):
            return {name: _of_label(name, each, scrubber) for name, each in value.items() if KEY.match(name)}
        return {_key(name, scrubber): _of(each, name, scrubber) for name, each in value.items()}
    if key in ("command", "args") and isinstance(value, list):
        return command_line.shown(map(str, value))
    if key == "env":
        return [
            {"name": name} for name in command_line.names(str(mapping(each).get("name")) for each in entries(value))
        ]
    if isinstance(value, list):
        return [_of(each, key, scrubber) for each in value]
    return _text(value, key, scrubber) if isinstance(value, str) else value


def _key(name: str, scrubber: Scrubber) -> str:
    return name if KEY.match(name) or name in vocabulary.words() else scrubber.untyped(name)


def _of_label(name: str, value: Any, scrubber: Scrubber) -> Any:
    return _text(str(value), "", scrubber) if name.startswith(OURS) else command_line.REDACTED


def _text(value: str, key: str, scrubber: Scrubber) -> str:
    if key in NAMES:
        return scrubber.name(value)
    return value if QUANTITY.match(value) else scrubber.untyped(value)
