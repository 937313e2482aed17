"""All that is wrong with an ElasticJob, its pods' templates included: what is refused when it is applied, and what
keeps a stored one from being run.

`job_objections` knows the job's own fields. A template that could not be supervised is found here, by the rules that
the injection of its pods follows, because their refusal would come too late to be read: after the job was accepted.
"""

from __future__ import annotations

from collections.abc import Iterator

from outrider.master.core.cluster import (
    chaos,
    elastic_policy,
    job_objections,
    modes,
    owners,
    ps_jobs,
    run_policy,
    shapes,
)
from outrider.master.core.cluster.elasticjob import members
from outrider.master.core.cluster.injection_objections import objections
from outrider.master.core.cluster.limits import USUAL, Limits
from outrider.master.core.cluster.names import CHAOS, INJECT, JOB, MEMBER, NPROC, ROLE, Document
from outrider.master.core.cluster.parts import entries, mapping
from outrider.master.core.cluster.pods import handed_on

_NO_RIGHT = (
    "the trainer's container has no right to break its network (root, the capability NET_ADMIN and no hostNetwork); "
    "while the job runs, outrider chaos {} --pod NAME does, for who may make privileged pods"
)


def problems(job: Document, old: Document | None = None, limits: Limits = USUAL) -> list[str]:
    """Sentences that begin with the path of a field, each once; none where it can be run."""
    if malformed := shapes.malformed(job):
        return malformed
    said = [*elastic_policy.objections(job), *run_policy.objections(job), *modes.problems(job)]
    meant = elastic_policy.in_our_words(job)
    before = None if old is None else elastic_policy.in_our_words(old)
    found = [*job_objections.validate(meant, before, limits), *ps_jobs.objections(meant)]
    found += [*_templates(meant), *_chaos(meant)]
    if before is not None:
        found += ps_jobs.changes(meant, before)
    said += (elastic_policy.in_their_words(each, job) for each in found)
    return list(dict.fromkeys(said))


def _chaos(job: Document) -> Iterator[str]:
    """Faults that are armed must be met by somebody."""
    path, spec = f"metadata.annotations[{CHAOS}]", mapping(job.get("spec"))
    text = str(mapping(mapping(job.get("metadata")).get("annotations")).get(CHAOS) or "")
    try:
        armed = chaos.asked(text)
    except ValueError as error:
        yield f"{path}: {error}"
        return
    if armed and spec.get("adopts") is not None:
        yield f"{path}: the pods of another owner are all made from one template, so that nothing is armed for one"
        return
    _least, most, _wanted = members(job)
    impossible = _impossible(spec)
    for each in armed:
        if wrong := chaos.wrong_for(each, most, impossible):
            yield f"{path}: {each}: {wrong}"


def _impossible(spec: Document) -> dict[str, str]:
    """Faults that cannot be armed in such a job, and why."""
    found = {}
    if mapping(spec.get("nodeCheck")).get("enabled") is not True:
        found[chaos.BAD_NODE] = "only the node check meets it; set spec.nodeCheck.enabled"
    roles = mapping(spec.get("replicaSpecs")).values()
    if not all(chaos.may_break_its_network(mapping(mapping(role).get("template"))) for role in roles):
        found |= {
            name: _NO_RIGHT.format(" ".join([name, *filter(None, [chaos.KINDS[name].unit])])) for name in chaos.NETWORK
        }
    return found


def _templates(job: Document) -> Iterator[str]:
    spec, inherited = mapping(job.get("spec")), handed_on(job)
    inherited.pop(NPROC, None)  # which is a field of the job, and has been looked at
    for role, value in mapping(spec.get("replicaSpecs")).items():
        template = mapping(mapping(value).get("template"))
        pod_spec, metadata = mapping(template.get("spec")), mapping(template.get("metadata"))
        if spec.get("adopts") is not None or not entries(pod_spec.get("containers")):
            continue  # it makes no pods, or that has been said
        labels = {JOB: "job", ROLE: str(role).lower(), MEMBER: f"{role}-0", INJECT: "true"}
        notes = {**inherited, **mapping(metadata.get("annotations"))}
        path = f"spec.replicaSpecs.{role}.template"
        yield from _of_pod({"metadata": {"labels": labels, "annotations": notes}, "spec": pod_spec}, path)


def _of_pod(pod: Document, path: str) -> Iterator[str]:
    try:
        place = owners.place_of(pod, "default", {})
    except ValueError as error:
        yield f"{path}.metadata: {error}"
        return
    assert place is not None, "its label asks for it"
    yield from (f"{path}.{objection}" for objection in objections(pod, place))
