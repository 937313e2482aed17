"""Checks of the ElasticJobs in a file: their fields, their volumes, and a dry run by the API server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from outrider.cli.doctor.findings import Finding, ok, problem, warning
from outrider.cli.errors import UserError
from outrider.master.core.k8s.elasticjob import validation
from outrider.master.core.k8s.values.fields import entries, mapping
from outrider.master.core.k8s.values.names import KIND, Document

if TYPE_CHECKING:
    from outrider.cli.doctor.cluster import Look

SHARED = ("ReadWriteMany", "ReadOnlyMany")


def jobs_of(documents: list[Document]) -> list[Document]:
    """The ElasticJobs among the documents of a file and in their Lists."""
    flat = [each for document in documents
            for each in (entries(document.get("items")) if document.get("kind") == "List" else [document])]  # fmt: skip
    return [mapping(each) for each in flat if mapping(each).get("kind") == KIND]


def name_of(job: Document) -> str:
    return str(mapping(job.get("metadata")).get("name") or "without a name")


def fields(file: str, jobs: list[Document]) -> Iterator[Finding]:
    """The field errors of each ElasticJob, by the schema and by the rules that a schema cannot express."""
    if not jobs:
        yield problem("file", f"{file} has no ElasticJob", "give a file with `kind: ElasticJob`")
    for job in jobs:
        errors = validation.problems(job)
        for error in errors:
            yield problem("file", f"{name_of(job)}: {error}", "correct this field (docs/reference/elasticjob.md)")
        if not errors:
            yield ok("file", f"the fields of ElasticJob {name_of(job)} are valid")


def claimed(job: Document) -> dict[str, int]:
    """The PersistentVolumeClaims that the pod templates name, with the most pods that mount each."""
    spec = mapping(job.get("spec"))
    found: dict[str, int] = {}
    for roles in (mapping(spec.get("replicaSpecs")), mapping(spec.get("pytorchReplicaSpecs"))):
        for role in map(mapping, roles.values()):
            pods = role.get("maxReplicas") or role.get("replicas") or role.get("minReplicas") or 1
            template = mapping(mapping(role.get("template")).get("spec"))
            for volume in map(mapping, entries(template.get("volumes"))):
                name = mapping(volume.get("persistentVolumeClaim")).get("claimName")
                if name:
                    found[str(name)] = found.get(str(name), 0) + (pods if isinstance(pods, int) else 1)
    return found


def claims(job: Document) -> Callable[[Look, str], Iterator[Finding]]:
    """A check of the PersistentVolumeClaims that a job names."""

    def check(look: Look, namespace: str) -> Iterator[Finding]:
        for name, pods in claimed(job).items():
            yield from _claim(look.get("PersistentVolumeClaim", name, namespace), name, pods, namespace)

    return check


def _claim(found: Document | None, name: str, pods: int, namespace: str) -> Iterator[Finding]:
    if found is None:
        yield problem("volumes", f"the PersistentVolumeClaim {name} does not exist in {namespace}",
                      "create it, or correct claimName")  # fmt: skip
        return
    modes = [str(each) for each in entries(mapping(found.get("spec")).get("accessModes"))]
    phase = mapping(found.get("status")).get("phase")
    if pods > 1 and not set(modes) & set(SHARED):
        yield warning("volumes", f"{name} is {', '.join(modes)}, and up to {pods} pods mount it: those of other nodes "
                      f"cannot start", "use a claim with ReadWriteMany")  # fmt: skip
    elif phase != "Bound":
        fix = f"kubectl -n {namespace} describe pvc {name}; a class that waits for the first pod is as it should be"
        yield warning("volumes", f"{name} is {phase}, not Bound", fix)
    else:
        yield ok("volumes", f"{name} is bound, {', '.join(modes)}")


def tried(job: Document) -> Callable[[Look, str], Iterator[Finding]]:
    """A check that has the API server and the webhook judge the job without storing it."""

    def check(look: Look, namespace: str) -> Iterator[Finding]:
        metadata = {**mapping(job.get("metadata")), "namespace": namespace}
        if look.get(KIND, name_of(job), namespace) is not None:
            yield ok("dry run", f"{namespace}/{name_of(job)} exists already; applying the file would change it")
            return
        try:
            look.tried({**job, "metadata": metadata}, namespace)
        except UserError as error:
            yield problem("dry run", error.message, "correct what the API server names")
            return
        yield ok("dry run", f"the API server would accept {namespace}/{name_of(job)}")

    return check
