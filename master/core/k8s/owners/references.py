"""Owner references: from a pod up through its controllers, and from a job's objects to the job."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.master.core.k8s.values.fields import entries, mapping
from outrider.master.core.k8s.values.names import GROUP_VERSION, KIND, Document


def controller_of(metadata: Document) -> Document | None:
    """The owner reference of the controller that creates and deletes the object; None if there is none."""
    references = (mapping(reference) for reference in entries(metadata.get("ownerReferences")))
    return next((reference for reference in references if reference.get("controller")), None)


def meant_by(reference: Document | None, owners: Sequence[Document]) -> Document | None:
    """The owner that a reference names; a later object of the same name has another UID and does not count."""
    wanted = mapping(reference)
    for owner in owners if wanted else ():
        metadata = mapping(owner.get("metadata"))
        is_it = (owner.get("kind"), metadata.get("name")) == (wanted.get("kind"), wanted.get("name"))
        if is_it and wanted.get("uid") in (None, metadata.get("uid")):
            return owner
    return None


def above(owner: Document | None, owners: Sequence[Document]) -> Document | None:
    """The controller of an owner; None if it has none or is unknown."""
    return meant_by(controller_of(mapping(mapping(owner).get("metadata"))), owners)


def owned_by(job: Document) -> Document:
    """The owner reference for objects of a job, so they are deleted with the job."""
    metadata = job["metadata"]
    return {
        "apiVersion": GROUP_VERSION,
        "kind": KIND,
        "name": metadata["name"],
        "uid": metadata.get("uid") or "",
        "controller": True,
        "blockOwnerDeletion": True,
    }
