"""Gets the documents of a report, from a local job's folder or with the user's rights from the API server.

A document that is missing, too large or no JSON becomes a sentence of the report.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from outrider.cli import job_dirs
from outrider.cli.documents import status_of
from outrider.cli.errors import UserError
from outrider.cli.kube.api import call_api, cluster
from outrider.master.core.k8s.elasticjob import history
from outrider.master.core.k8s.values.names import GROUP_VERSION, PLURAL
from outrider.report.job import Sources

MOST_PARTS = 40
"""The most parts of a history that are read: those of the newest masters."""
MOST_BYTES = 16 << 20
"""The most bytes of one part, and of the newest events."""


def of_folder(job: str, status: dict[str, Any] | None = None) -> Sources:
    """The documents of a local job, whose status may be known. Raises UserError without a status and a history."""
    folder, problems = job_dirs.existing(job), list[str]()
    paths = sorted(folder.glob("history-*.json"), key=_term)
    try:
        status = status or status_of(job)
    except UserError as unread:
        if not paths:
            raise
        status = {"job": folder.name}
        problems.append(f"{unread.message[0].upper()}{unread.message[1:]}. The report has what the history has.")
    if len(paths) > MOST_PARTS:
        problems.append(f"Of {len(paths)} masters the newest {MOST_PARTS} are shown.")
    parts = [(path.name, part) for path in paths[-MOST_PARTS:] if (part := _part(path, problems)) is not None]
    return Sources(status, parts, list(_events(folder / "events.jsonl", problems)), problems)


def _term(path: Path) -> int:
    number = path.stem.rpartition("-")[2]
    return int(number) if number.isascii() and number.isdigit() and len(number) < 10 else 0


def _part(path: Path, problems: list[str]) -> Any:
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
        if len(raw) > MOST_BYTES:
            raise ValueError(f"it has more than {MOST_BYTES >> 20} MiB")
        return json.loads(raw)
    except (OSError, ValueError, RecursionError) as error:
        problems.append(f"{path.name} is left out: {error}.")
        return None


def _events(path: Path, problems: list[str]) -> Iterator[Any]:
    """The newest events, without lines that are no JSON: a killed master may have left one half written."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - MOST_BYTES))
            lines = file.read(MOST_BYTES).split(b"\n")
    except FileNotFoundError:
        return
    except OSError as error:
        problems.append(f"{path.name} is left out: {error.strerror}.")
        return
    for line in lines:
        try:
            yield json.loads(line)
        except (ValueError, RecursionError):
            continue


def of_cluster(name: str, namespace: str | None) -> Sources:
    """The ElasticJob and its ElasticJobHistory. Raises UserError if there is no such ElasticJob."""
    api, default = cluster()
    from kubernetes.client import CustomObjectsApi

    namespace = namespace or default
    group, version = GROUP_VERSION.split("/")
    read = CustomObjectsApi(api.api_client).get_namespaced_custom_object
    where = {"group": group, "version": version}
    job = call_api(read, "get", name, namespace, "ElasticJob", plural=PLURAL, **where)
    problems: list[str] = []
    try:
        found = call_api(read, "get", name, namespace, history.HISTORY, plural=history.PLURAL_OF_HISTORY, **where)
    except UserError as missing:
        problems.append(f"The history is left out: {missing.message}.")
        found = {}
    packed = found.get("parts") if isinstance(found.get("parts"), dict) else {}
    parts = []
    for key in sorted(packed, key=lambda key: _term(Path(f"{key}.json")))[-MOST_PARTS:]:
        try:
            parts.append((f"{history.HISTORY} {key}", history.unpacked(str(packed[key]), MOST_BYTES)))
        except (ValueError, RecursionError) as error:
            problems.append(f"{history.HISTORY} {key} is left out: {error}.")
    return Sources(job, parts, (), problems, f"ElasticJob {namespace}/{name}")


def written(page: str, path: Path) -> None:
    """Writes the report, or leaves an older one as it is. Raises OSError."""
    if path.exists() and not path.is_file():  # a device or a pipe
        path.write_text(page, encoding="utf-8")
        return
    beside = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        beside.write_text(page, encoding="utf-8")
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
