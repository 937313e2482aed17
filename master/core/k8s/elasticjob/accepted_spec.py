"""The last spec of a job that could be run. The status keeps it while a newer one cannot be: the next master goes on
with it, though the document says something else by then (docs/adr/0027).

The status keeps it only as long as it is needed, so that no other job pays for it.
"""

from __future__ import annotations

import json

from outrider.master.core.k8s.values import shapes
from outrider.master.core.k8s.values.fields import mapping
from outrider.master.core.k8s.values.names import Document


def kept(status: Document, accepted: Document) -> Document:
    """The status with the spec that is followed; it goes with the first status that is written without."""
    followed = {"spec": accepted["spec"], "annotations": mapping(accepted["metadata"].get("annotations"))}
    return {**status, "saved": {**mapping(status.get("saved")), "spec": json.dumps(followed, separators=(",", ":"))}}


def kept_by(job: Document) -> Document | None:
    """The document with the spec that its status keeps; None where it keeps none that can be read."""
    try:
        followed = json.loads(mapping(mapping(job.get("status")).get("saved")).get("spec") or "null")
    except (ValueError, TypeError, RecursionError):
        return None
    if not isinstance(mapping(followed).get("spec"), dict):
        return None
    metadata = {**shapes.metadata_of(job), "annotations": mapping(followed.get("annotations"))}
    return {**job, "metadata": metadata, "spec": followed["spec"]}
