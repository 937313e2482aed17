"""Whether a job is supervised, only observed, or left alone; the most cautious setting wins.

The master's setting OUTRIDER_MODE holds for all jobs. Annotations hold for a namespace or an ElasticJob; if another
owner makes the pods, an annotation on any pod holds for its job. An annotation with an unsupported value is ignored
here; `problems` reports it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from outrider.master.core.k8s.values.field_errors import unsupported
from outrider.master.core.k8s.values.fields import mapping
from outrider.master.core.k8s.values.names import DOMAIN, Document

SUPERVISE, OBSERVE, OFF = MODES = ("supervise", "observe", "off")
"""The modes, from the least to the most cautious."""
SETTING = "OUTRIDER_MODE"
SWITCH, MODE = f"{DOMAIN}/supervise", f"{DOMAIN}/mode"
SWITCHES = {"on": SUPERVISE, "off": OFF}
SWITCHED_OFF, OBSERVED = "SupervisionOff", "Observed"
"""Reasons of the condition Supervised while its status is False."""


class Mode(NamedTuple):
    word: str
    why: str
    """The source of the mode; empty if the mode is the default."""


def mode_of(setting: str, job: Document, pods: Iterable[Document] = (), namespace: Document | None = None) -> Mode:
    """The mode of a job. `setting`: the master's, one of MODES; `pods`: the job's pods, which count if another owner
    makes them; `namespace`: the annotations of its namespace."""
    found_modes = [Mode(setting, f"the master's {SETTING} is {setting}")]
    metadata = mapping(job.get("metadata"))
    found_modes += _modes_in(f"its namespace {metadata.get('namespace')}", mapping(namespace))
    found_modes += _modes_in("its ElasticJob", mapping(metadata.get("annotations")))
    if mapping(job.get("spec")).get("adopts"):
        for pod in pods:
            of_pod = mapping(pod.get("metadata"))
            found_modes += _modes_in(f"its pod {of_pod.get('name')}", mapping(of_pod.get("annotations")))
    found = max(found_modes, key=lambda mode: MODES.index(mode.word))
    return found if found.word != SUPERVISE else Mode(SUPERVISE, "")


def of_pod(setting: str, pod: Document, namespace: Document | None = None) -> Mode:
    """The mode of a pod that is being created and has no ElasticJob yet."""
    return mode_of(setting, {"metadata": mapping(pod.get("metadata"))}, (), namespace)


def says_something(document: Document) -> bool:
    """Whether an object has one of the annotations."""
    notes = mapping(mapping(document.get("metadata")).get("annotations"))
    return SWITCH in notes or MODE in notes


def trimmed(namespace: Document) -> Document:
    """The fields of a namespace that the master reads."""
    kept = ("name", "annotations", "resourceVersion")
    return {"metadata": {name: value for name, value in namespace["metadata"].items() if name in kept}}


def problems(job: Document) -> Iterator[str]:
    """Field errors for annotations with an unsupported value."""
    notes = mapping(mapping(job.get("metadata")).get("annotations"))
    for name, words in ((SWITCH, tuple(SWITCHES)), (MODE, MODES)):
        if name in notes and _word(notes, name) not in words:
            yield unsupported(f"metadata.annotations[{name}]", notes[name], words)


def _word(notes: Document, name: str) -> str:
    return str(notes.get(name)).strip().lower()


def _modes_in(source: str, notes: dict[str, Any]) -> Iterator[Mode]:
    if (word := SWITCHES.get(_word(notes, SWITCH))) is not None:
        yield Mode(word, f'the annotation {SWITCH} of {source} is "{_word(notes, SWITCH)}"')
    if (word := _word(notes, MODE)) in MODES:
        yield Mode(word, f'the annotation {MODE} of {source} is "{word}"')
