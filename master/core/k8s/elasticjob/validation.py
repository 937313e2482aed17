"""All field errors of an ElasticJob, including its pod templates.

The webhook refuses a job with field errors, and the master does not run a stored one. First `k8s.elasticjob.schema` and
then `k8s.elasticjob.cross_field` check the job's own fields. This module also applies the injection's rules to the pod
templates: otherwise the job would be accepted first and its pods rejected later, where the user does not look.
"""

from __future__ import annotations

from collections.abc import Iterator

from outrider.master.core.k8s.elasticjob import cross_field, pytorch_objections, run_policy, schema
from outrider.master.core.k8s.elasticjob import ps as elasticjob_ps
from outrider.master.core.k8s.owners import owner as owners_owner
from outrider.master.core.k8s.pods import armed_faults
from outrider.master.core.k8s.pods.build import handed_on
from outrider.master.core.k8s.pods.rejections import objections
from outrider.master.core.k8s.values import chaos, modes, pytorch_fields, shapes
from outrider.master.core.k8s.values.field_errors import forbidden, invalid
from outrider.master.core.k8s.values.fields import entries, mapping
from outrider.master.core.k8s.values.limits import USUAL, Limits
from outrider.master.core.k8s.values.names import CHAOS, INJECT, JOB, MEMBER, NPROC, ROLE, Document
from outrider.master.core.k8s.values.replica_specs import members

_NO_RIGHT = (
    "the trainer's container needs root, the capability NET_ADMIN and no hostNetwork to break its network; while the "
    "job runs, a user who may create privileged pods can use outrider chaos {} --pod NAME"
)


def problems(job: Document, old: Document | None = None, limits: Limits = USUAL) -> list[str]:
    """The field errors of a job, without duplicates; none if the job can be run."""
    if malformed := shapes.malformed(job):
        return malformed
    meant = pytorch_fields.in_our_words(job)
    if wrong := schema.objections(mapping(meant.get("spec"))):
        return list(dict.fromkeys(pytorch_objections.in_their_words(each, job) for each in wrong))
    errors = [*pytorch_objections.objections(job), *run_policy.objections(job), *modes.problems(job)]
    before = None if old is None else pytorch_fields.in_our_words(old)
    found = [*cross_field.validate(meant, before, limits), *elasticjob_ps.objections(meant)]
    found += [*_templates(meant), *_chaos(meant)]
    if before is not None:
        found += elasticjob_ps.changes(meant, before)
    errors += (pytorch_objections.in_their_words(each, job) for each in found)
    return list(dict.fromkeys(errors))


def _chaos(job: Document) -> Iterator[str]:
    """Field errors for armed faults that no member of the job can have."""
    path, spec = f"metadata.annotations[{CHAOS}]", mapping(job.get("spec"))
    text = str(mapping(mapping(job.get("metadata")).get("annotations")).get(CHAOS) or "")
    try:
        armed = chaos.all_armed(text)
    except ValueError as error:
        yield f"{path}: {error}"
        return
    if armed and spec.get("adopts") is not None:
        yield forbidden(path, "all pods of another owner have one template, so no fault can be armed for a single pod")
        return
    _least, most, _desired = members(job)
    impossible = _impossible(spec)
    for each in armed:
        if wrong := chaos.wrong_for(each, most, impossible):
            yield invalid(path, str(each), wrong)


def _impossible(spec: Document) -> dict[str, str]:
    """The faults that cannot be armed in this job, each with the reason."""
    found = {}
    if mapping(spec.get("nodeCheck")).get("enabled") is not True:
        found[chaos.BAD_NODE] = "only the node check can detect it; set spec.nodeCheck.enabled"
    roles = mapping(spec.get("replicaSpecs")).values()
    if not all(armed_faults.may_break_its_network(mapping(mapping(role).get("template"))) for role in roles):
        found |= {
            name: _NO_RIGHT.format(" ".join([name, *filter(None, [chaos.KINDS[name].unit])])) for name in chaos.NETWORK
        }
    return found


def _templates(job: Document) -> Iterator[str]:
    spec, inherited = mapping(job.get("spec")), handed_on(job)
    inherited.pop(NPROC, None)  # a field of the job, which has been checked
    for role, value in mapping(spec.get("replicaSpecs")).items():
        template = mapping(mapping(value).get("template"))
        pod_spec, metadata = mapping(template.get("spec")), mapping(template.get("metadata"))
        if spec.get("adopts") is not None or not entries(pod_spec.get("containers")):
            continue  # it creates no pods, or this error has been reported
        labels = {JOB: "job", ROLE: str(role).lower(), MEMBER: f"{role}-0", INJECT: "true"}
        notes = {**inherited, **mapping(metadata.get("annotations"))}
        path = f"spec.replicaSpecs.{role}.template"
        yield from _of_pod({"metadata": {"labels": labels, "annotations": notes}, "spec": pod_spec}, path)


def _of_pod(pod: Document, path: str) -> Iterator[str]:
    try:
        place = owners_owner.place_of(pod, "default", {})
    except ValueError as error:
        yield f"{path}.{error}"
        return
    assert place is not None, "its label requests the injection"
    yield from (f"{path}.{objection}" for objection in objections(pod, place))
