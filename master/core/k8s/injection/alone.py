"""Which pods may begin without a master: those whose command forms its world by itself (docs/adr/0028).

Said by who makes it: one member, or a place to meet that the user or the job's operator has given. A job that may have
other sizes has worlds that this pod would know nothing of, and so has one with spares. Whether a generation was ever
formed, the webhook has read; where it could not, one was.
"""

from __future__ import annotations

import re
from typing import Any

from outrider.master.core.k8s.owners.place import Place
from outrider.master.core.k8s.values.fields import entries, mapping
from outrider.master.core.k8s.values.names import MAX, MIN, SPARES, Document

MEETING_PLACES = ("MASTER_ADDR", "PET_MASTER_ADDR", "PET_RDZV_ENDPOINT", "TF_CONFIG")
"""Variables that say where a world meets: of torch, of torchrun, of TensorFlow. Operators set them."""
_FLAG = re.compile(r"--(?:rdzv[-_]endpoint|master[-_]addr)(?:=|\s+)(\S+)")
_ITS_OWN = re.compile(r"[\"']?(localhost|127\.|0\.0\.0\.0|\[?::1?\]?(:|$))")


def why_it_may(trainer: Document, annotations: Document, place: Place) -> str:
    """Empty where it may not begin by itself."""
    if place.member or not place.is_untrained or place.members is None:
        return ""
    if any(annotations.get(note) for note in (MIN, MAX, SPARES)):
        return ""
    if place.members == 1:
        return "it is the one member of its job"
    for entry in map(mapping, entries(trainer.get("env"))):
        if entry.get("name") in MEETING_PLACES and _is_a_place(entry):
            return f"its variable {entry['name']} says where its world meets"
    words = " ".join(map(str, (*entries(trainer.get("command")), *entries(trainer.get("args")))))
    found = _FLAG.search(words)
    if found and not _ITS_OWN.match(found[1]):
        return f"its command says where its world meets, {found[0][:100]}"
    return ""


def _is_a_place(entry: Document) -> bool:
    value: Any = entry.get("value")
    return bool(entry.get("valueFrom")) or (isinstance(value, str) and bool(value) and not _ITS_OWN.match(value))
