"""Pods that may start without a master: those whose command forms its process group by itself (docs/adr/0028).

Such a job has one member, or a rendezvous address from the user or the job's operator. A job with several possible
sizes or with spares has generations that the pod would not know. The webhook has read whether a generation was ever
formed; if it could not read that, it assumes so.
"""

from __future__ import annotations

import re
from typing import Any

from outrider.master.core.k8s.owners.place import Place
from outrider.master.core.k8s.values.fields import entries, mapping
from outrider.master.core.k8s.values.names import MAX, MIN, SPARES, Document

RENDEZVOUS = ("MASTER_ADDR", "PET_MASTER_ADDR", "PET_RDZV_ENDPOINT", "TF_CONFIG")
"""Variables with a rendezvous address, of torch, torchrun and TensorFlow; operators set them."""
_FLAG = re.compile(r"--(?:rdzv[-_]endpoint|master[-_]addr)(?:=|\s+)(\S+)")
_ITS_OWN = re.compile(r"[\"']?(localhost|127\.|0\.0\.0\.0|\[?::1?\]?(:|$))")


def why_it_may(trainer: Document, annotations: Document, place: Place) -> str:
    """Why the pod may start without a master; empty if it may not."""
    if place.member or not place.is_untrained or place.members is None:
        return ""
    if any(annotations.get(note) for note in (MIN, MAX, SPARES)):
        return ""
    if place.members == 1:
        return "it is the only member of its job"
    for entry in map(mapping, entries(trainer.get("env"))):
        if entry.get("name") in RENDEZVOUS and _is_an_address(entry):
            return f"its variable {entry['name']} has the rendezvous address"
    words = " ".join(map(str, (*entries(trainer.get("command")), *entries(trainer.get("args")))))
    found = _FLAG.search(words)
    if found and not _ITS_OWN.match(found[1]):
        return f"its command has the rendezvous address: {found[0][:100]}"
    return ""


def _is_an_address(entry: Document) -> bool:
    value: Any = entry.get("value")
    return bool(entry.get("valueFrom")) or (isinstance(value, str) and bool(value) and not _ITS_OWN.match(value))
