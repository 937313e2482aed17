"""The last valid spec of a job, which the status stores while the newest spec is invalid.

The next master continues with this spec, although the document has a newer one by then (docs/adr/0027). The status
stores it only as long as it is needed, so other jobs have no cost.
"""

from __future__ import annotations

import json

from outrider.master.core.k8s.values import shapes
from outrider.master.core.k8s.values.fields import mapping
from outrider.master.core.k8s.values.names import Document


def kept(status: Document, accepted: Document) -> Document:
    """The status with the spec that the master follows; the next status written without it removes it."""
    followed = {"spec": accepted["spec"], "annotations": mapping(accepted["metadata"].get("annotations"))}
    return {**status, "saved": {**mapping(status.get("saved")), "spec": json.dumps(followed, separators=(",", ":"))}}


def kept_by(job: Document) -> Document | None:
    """The document with the spec that its status stores; None if the status stores none that can be read."""
    try:
        followed = json.loads(mapping(mapping(job.get("status")).get("saved")).get("spec") or "null")
    except (ValueError, TypeError, RecursionError):
        return None
    if not isinstance(mapping(followed).get("spec"), dict):
        return None
    metadata = {**shapes.metadata_of(job), "annotations": mapping(followed.get("annotations"))}
    return {**job, "metadata": metadata, "spec": followed["spec"]}
