"""Whether a job is supervised, only observed, or left alone: the most cautious of all that say so.

One setting of the master says it for all jobs (OUTRIDER_MODE), annotations say it for a namespace, for an ElasticJob,
and for a job of another owner also on one of its pods. What cannot be read does not count: it is said where the job is
checked (`problems`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from outrider.master.core.k8s.values.fields import mapping
from outrider.master.core.k8s.values.names import DOMAIN, Document

SUPERVISE, OBSERVE, OFF = MODES = ("supervise", "observe", "off")
"""From the least cautious on."""
SETTING = "OUTRIDER_MODE"
SWITCH, MODE = f"{DOMAIN}/supervise", f"{DOMAIN}/mode"
SWITCHES = {"on": SUPERVISE, "off": OFF}
SWITCHED_OFF, OBSERVED = "SupervisionOff", "Observed"
"""Reasons of the condition Supervised while it is False."""


class Mode(NamedTuple):
    word: str
    why: str
    """Who says so; empty where nobody says anything."""


def mode_of(setting: str, job: Document, pods: Iterable[Document] = (), namespace: Document | None = None) -> Mode:
    """`setting`: one of MODES; `pods`: those of the job, which count where another owner makes them; `namespace`: its
    annotations."""
    said = [Mode(setting, f"the master's {SETTING} is {setting}")]
    metadata = mapping(job.get("metadata"))
    said += _said_by(f"its namespace {metadata.get('namespace')}", mapping(namespace))
    said += _said_by("its ElasticJob", mapping(metadata.get("annotations")))
    if mapping(job.get("spec")).get("adopts"):
        for pod in pods:
            of_pod = mapping(pod.get("metadata"))
            said += _said_by(f"its pod {of_pod.get('name')}", mapping(of_pod.get("annotations")))
    found = max(said, key=lambda mode: MODES.index(mode.word))
    return found if found.word != SUPERVISE else Mode(SUPERVISE, "")


def of_pod(setting: str, pod: Document, namespace: Document | None = None) -> Mode:
    """Of a pod that is being made and belongs to no ElasticJob."""
    return mode_of(setting, {"metadata": mapping(pod.get("metadata"))}, (), namespace)


def says_something(document: Document) -> bool:
    """An object that has one of the annotations."""
    notes = mapping(mapping(document.get("metadata")).get("annotations"))
    return SWITCH in notes or MODE in notes


def trimmed(namespace: Document) -> Document:
    """What is wanted of a namespace."""
    kept = ("name", "annotations", "resourceVersion")
    return {"metadata": {name: value for name, value in namespace["metadata"].items() if name in kept}}


def problems(job: Document) -> Iterator[str]:
    notes = mapping(mapping(job.get("metadata")).get("annotations"))
    for name, words in ((SWITCH, tuple(SWITCHES)), (MODE, MODES)):
        if name in notes and _word(notes, name) not in words:
            allowed = ", ".join(f'"{word}"' for word in words)
            yield f"metadata.annotations[{name}]: {str(notes[name])[:60]!r} must be one of {allowed}"


def _word(notes: Document, name: str) -> str:
    return str(notes.get(name)).strip().lower()


def _said_by(who: str, notes: dict[str, Any]) -> Iterator[Mode]:
    if (word := SWITCHES.get(_word(notes, SWITCH))) is not None:
        yield Mode(word, f'the annotation {SWITCH} of {who} is "{_word(notes, SWITCH)}"')
    if (word := _word(notes, MODE)) in MODES:
        yield Mode(word, f'the annotation {MODE} of {who} is "{word}"')
