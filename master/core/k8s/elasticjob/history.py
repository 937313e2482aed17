"""The ElasticJobHistory of a job: parts of its history, one of each master, in a bounded number of bytes."""

from __future__ import annotations

import base64
import gzip
import io
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from outrider.master.core.k8s.owners.references import owned_by
from outrider.master.core.k8s.values import paths
from outrider.master.core.k8s.values.names import GROUP_VERSION, JOB, Document

HISTORY, PLURAL_OF_HISTORY = "ElasticJobHistory", "elasticjobhistories"
MOST_BYTES: Final = 700_000
"""The most bytes of all parts of one job; the API server accepts 1.5 MB."""
LATEST = 10
"""The number of faults that keep their evidence longest."""


def path_of(namespace: str, name: str = "") -> str:
    folder = paths.folder(GROUP_VERSION, PLURAL_OF_HISTORY, namespace)
    return paths.named(folder, name) if name else folder


def key(part: Mapping[str, Any]) -> str:
    return f"term-{part['term']}"


def packed(part: Mapping[str, Any], most: int = MOST_BYTES) -> str:
    """The part as text of at most so many bytes: evidence goes first, the oldest first, then the timeline."""
    for reduced in _reduced(part):
        text = base64.b64encode(gzip.compress(json.dumps(reduced, separators=(",", ":")).encode(), mtime=0)).decode()
        if len(text) <= most:
            return text
    return ""


def _reduced(part: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    faults = part["faults"]
    bare = [{**fault, "evidence": [], "decisions": []} for fault in faults]
    yield part
    yield {**part, "faults": [*bare[:-LATEST], *faults[-LATEST:]]}
    yield {**part, "faults": bare}
    yield {**part, "faults": bare, "tracks": [], "events": []}


def unpacked(text: str, most: int) -> Any:
    """The JSON of a packed part. Raises ValueError if it is not one, or has more than so many bytes."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(base64.b64decode(text, validate=True))) as file:
            raw = file.read(most + 1)
    except (OSError, EOFError) as error:
        raise ValueError(str(error)) from None
    if len(raw) > most:
        raise ValueError(f"more than {most} bytes")
    return json.loads(raw)


def document(job: Document, parts: Mapping[str, str]) -> Document:
    """A new ElasticJobHistory, which is deleted with its job."""
    name = job["metadata"]["name"]
    return {
        "apiVersion": GROUP_VERSION,
        "kind": HISTORY,
        "metadata": {
            "name": name,
            "namespace": job["metadata"]["namespace"],
            "labels": {JOB: name},
            "ownerReferences": [owned_by(job)],
        },
        "parts": dict(parts),
    }


def to_drop(parts: Mapping[str, str], ours: str) -> list[str]:
    """The keys of the oldest parts that no longer fit; the part `ours` stays."""
    total = sum(map(len, parts.values()))
    dropped = []
    for name in sorted(parts, key=_term):
        if total <= MOST_BYTES:
            break
        if name != ours:
            total -= len(parts[name])
            dropped.append(name)
    return dropped


def _term(name: str) -> int:
    number = name.rpartition("-")[2]
    return int(number) if number.isascii() and number.isdigit() else 0
