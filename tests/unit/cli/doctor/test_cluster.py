"""The checks of a cluster, on objects as an API server holds them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import outrider
from outrider.cli.doctor import cluster, elasticjob_file
from outrider.cli.doctor.findings import Finding
from outrider.cli.doctor.reader import NoRight
from outrider.cli.errors import UserError
from outrider.master.core.k8s.values.names import Document

ROOT = Path(__file__).resolve().parents[4]
JOB: Document = yaml.safe_load((ROOT / "examples/elasticjob/digits.yaml").read_text())
SERVED = {"subsets": [{"addresses": [{"ip": "10.0.0.1"}]}]}
Change = Callable[["Cluster"], None]


def manifest(file: str, kind: str, name: str) -> Document:
    documents = yaml.safe_load_all((ROOT / "manifests/base" / file).read_text())
    return next(each for each in documents if (each["kind"], each["metadata"]["name"]) == (kind, name))


class Cluster:
    """Outrider as its manifests install it, ready; a test changes one thing."""

    def __init__(self) -> None:
        system = cluster.SYSTEM
        self.objects: dict[tuple[str, str, str], Document] = {
            ("Namespace", "", "team-a"): {"metadata": {"name": "team-a", "labels": {}, "annotations": {}}},
            ("CustomResourceDefinition", "", "elasticjobs.outrider.dev"): manifest(
                "elasticjobs.yaml", "CustomResourceDefinition", "elasticjobs.outrider.dev"
            ),
            ("MutatingWebhookConfiguration", "", "outrider"): manifest(
                "webhooks.yaml", "MutatingWebhookConfiguration", "outrider"
            ),
            ("Endpoints", "kube-system", "kube-dns"): SERVED,
        }
        for each in self.the("MutatingWebhookConfiguration", "outrider")["webhooks"]:
            each["clientConfig"]["caBundle"] = "Q0E="
        for name in ("master", "webhook"):
            deployment = manifest(f"{name}.yaml", "Deployment", f"outrider-{name}")
            deployment["status"] = {"readyReplicas": 2}
            self.objects["Deployment", system, f"outrider-{name}"] = deployment
            self.objects["Endpoints", system, f"outrider-{name}"] = SERVED
        self.policies: list[Document] = []
        self.denied: set[str] = set()
        """Rights that neither the user nor the master has."""
        self.invisible: set[str] = set()
        """Kinds that the user may not read."""
        self.refusal = ""

    def the(self, kind: str, name: str, namespace: str = "") -> Document:
        return self.objects[kind, namespace, name]

    def image(self, tag: str) -> None:
        template = self.the("Deployment", "outrider-master", cluster.SYSTEM)["spec"]["template"]["spec"]
        template["containers"][0]["image"] = f"registry:5000/outrider/sidecar:{tag}"

    def setting(self, name: str, value: str) -> None:
        template = self.the("Deployment", "outrider-master", cluster.SYSTEM)["spec"]["template"]["spec"]
        template["containers"][0]["env"].append({"name": name, "value": value})

    # -- as the reader of a real cluster --------------------------------------------------------------------------
    def version(self) -> str:
        return "v1.30.0"

    def is_served(self) -> bool:
        return ("CustomResourceDefinition", "", "elasticjobs.outrider.dev") in self.objects

    def get(self, kind: str, name: str, namespace: str = "") -> Document | None:
        self._see("get", kind)
        return self.objects.get((kind, namespace, name))

    def list(self, kind: str, namespace: str) -> list[Document]:
        self._see("list", kind)
        return self.policies

    def may(self, verb: str, group: str, resource: str, namespace: str, user: str = "") -> bool:
        if user:
            self._see("create", "LocalSubjectAccessReview")
        return f"{verb} {resource}" not in self.denied

    def tried(self, job: Document, namespace: str) -> None:
        if self.refusal:
            raise UserError(self.refusal)

    def _see(self, verb: str, kind: str) -> None:
        if kind in self.invisible:
            raise NoRight(f"{verb} {kind}")


def found(change: Change, namespace: str = "team-a") -> list[Finding]:
    of = Cluster()
    change(of)
    return list(cluster.findings(of, namespace))


def test_an_installation_as_it_should_be_has_no_problem() -> None:
    everything = found(lambda of: of.image(outrider.__version__))
    assert {each.level for each in everything} == {"ok"}
    assert {each.check for each in everything} >= {"ElasticJob", "master", "webhook", "injection", "network", "DNS"}


def gone(kind: str, name: str, namespace: str = "") -> Change:
    return lambda of: of.objects.pop((kind, namespace, name)) and None


def policy(*types: str, **rules: Any) -> Change:
    spec = {"podSelector": {}, "policyTypes": list(types), **rules}
    document = {"metadata": {"name": "closed", "namespace": "team-a"}, "spec": spec}
    return lambda of: of.policies.append(document)


def not_ready(of: Cluster) -> None:
    of.the("Deployment", "outrider-master", cluster.SYSTEM)["status"] = {}


def older_definition(of: Cluster) -> None:
    key = ("CustomResourceDefinition", "", "elasticjobs.outrider.dev")
    older = copy.deepcopy(of.objects[key])
    properties = older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    del properties["scaling"]
    of.objects[key] = older


def without_ca(of: Cluster) -> None:
    of.the("MutatingWebhookConfiguration", "outrider")["webhooks"][0]["clientConfig"].pop("caBundle")


def switched_off(of: Cluster) -> None:
    of.the("Namespace", "team-a")["metadata"]["annotations"]["outrider.dev/supervise"] = "off"


SYSTEM = cluster.SYSTEM
DNS_ONLY = {"egress": [{"ports": [{"port": 53, "protocol": "UDP"}]}]}
ALL_BUT_DNS = {"egress": [{"ports": [{"protocol": "TCP"}]}]}
WRONG: dict[str, tuple[Change, str, str, str]] = {
    "no definition": (gone("CustomResourceDefinition", "elasticjobs.outrider.dev"), "ElasticJob", "problem", "not def"),
    "an older definition": (older_definition, "ElasticJob", "warning", "lacks fields of this release: scaling"),
    "no master": (gone("Deployment", "outrider-master", SYSTEM), "master", "problem", "does not exist"),
    "a master that is not ready": (
        not_ready,
        "master",
        "problem",
        "no pod of outrider-system/outrider-master is ready",
    ),
    "no leader": (gone("Endpoints", "outrider-master", SYSTEM), "leader", "problem", "no master leads"),
    "another release": (lambda of: of.image("9.9.9"), "master", "warning", "this command line is"),
    "no webhook": (gone("Endpoints", "outrider-webhook", SYSTEM), "webhook", "problem", "get no sidecar"),
    "no registration": (gone("MutatingWebhookConfiguration", "outrider"), "injection", "problem", "does not exist"),
    "no CA": (without_ca, "injection", "problem", "has no CA yet"),
    "no namespace": (gone("Namespace", "team-a"), "namespace", "problem", "team-a does not exist"),
    "supervision is off": (
        switched_off,
        "namespace",
        "problem",
        'outrider.dev/supervise of its namespace team-a is "off',
    ),
    "other namespaces": (lambda of: of.setting("OUTRIDER_NAMESPACES", "b, c"), "settings", "problem", "only b, c, not"),
    "observe": (lambda of: of.setting("OUTRIDER_MODE", "observe"), "settings", "problem", "OUTRIDER_MODE is observe"),
    "no right": (
        lambda of: of.denied.add("create elasticjobs"),
        "your rights",
        "problem",
        "create elasticjobs.outrider",
    ),
    "a lesser right": (lambda of: of.denied.add("create pods/exec"), "your rights", "warning", "create pods/exec"),
    "the master's right": (
        lambda of: of.denied.add("create pods"),
        "master's rights",
        "problem",
        "may not create pods",
    ),
    "no way out": (
        policy("Egress"),
        "network",
        "problem",
        "the master (7070/TCP), each other (20000/TCP), DNS (53/UDP)",
    ),
    "only names": (policy("Egress", **DNS_ONLY), "network", "problem", "the master (7070/TCP), each other"),
    "no names": (policy("Egress", **ALL_BUT_DNS), "network", "warning", "from DNS (53/UDP)"),
    "no way in": (policy("Ingress"), "network", "problem", "from each other (20000/TCP), if"),
    "no DNS": (gone("Endpoints", "kube-dns", "kube-system"), "DNS", "warning", "has no address"),
}


@pytest.mark.parametrize("title", WRONG)
def test_what_is_wrong_is_found_with_what_to_do(title: str) -> None:
    change, check, level, words = WRONG[title]
    hits = [each for each in found(change) if each.check == check and each.level == level]
    assert any(words in each.text for each in hits), found(change)
    assert all(each.fix for each in hits)


@pytest.mark.parametrize(("part", "check"), [("master", "leader"), ("webhook", "webhook")])
def test_the_logs_to_look_at_are_those_of_one_deployment_alone(part: str, check: str) -> None:
    pods = manifest(f"{part}.yaml", "Deployment", f"outrider-{part}")["spec"]["template"]
    assert pods["metadata"]["labels"]["outrider.dev/part"] == part
    hits = [each for each in found(gone("Endpoints", f"outrider-{part}", SYSTEM)) if each.check == check and each.fix]
    assert [each.fix for each in hits] == [f"kubectl -n {SYSTEM} logs --prefix -l outrider.dev/part={part}"]


def test_namespaces_of_the_control_plane_are_refused() -> None:
    levels = {each.check: each.level for each in found(lambda of: None, "kube-system")}
    assert levels["namespace"] == levels["injection"] == "problem"


def test_a_user_who_may_read_nothing_learns_what_to_ask_for() -> None:
    kinds = {"CustomResourceDefinition", "Deployment", "MutatingWebhookConfiguration", "Endpoints", "Namespace",
             "NetworkPolicy", "LocalSubjectAccessReview"}  # fmt: skip
    everything = found(lambda of: of.invisible.update(kinds))
    assert "defined; its fields are not visible to you" in [each.text for each in everything]
    hidden = [each for each in everything if each.level == "warning"]
    assert {each.check for each in hidden} == {
        "master", "webhook", "injection", "namespace", "settings", "master's rights", "network", "DNS"
    }  # fmt: skip
    for each in hidden:
        assert each.text.startswith("cannot look: you may not ")
        assert each.fix.startswith("ask for the right to ")


# -- a file --------------------------------------------------------------------------------------------------------
def with_claim(replicas: int) -> Document:
    job = copy.deepcopy(JOB)
    worker = job["spec"]["replicaSpecs"]["worker"]
    worker["maxReplicas"] = worker["replicas"] = replicas
    worker["template"]["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    return job


@pytest.mark.parametrize(
    ("claim", "level", "words"),
    [
        (None, "problem", "data does not exist in team-a"),
        (
            {"spec": {"accessModes": ["ReadWriteOnce"]}, "status": {"phase": "Bound"}},
            "warning",
            "up to 4 pods mount it",
        ),
        ({"spec": {"accessModes": ["ReadWriteMany"]}, "status": {"phase": "Pending"}}, "warning", "not Bound"),
        ({"spec": {"accessModes": ["ReadWriteMany"]}, "status": {"phase": "Bound"}}, "ok", "is bound"),
    ],
)
def test_the_claims_of_a_file_are_looked_up(claim: Document | None, level: str, words: str) -> None:
    of = Cluster()
    if claim is not None:
        of.objects["PersistentVolumeClaim", "team-a", "data"] = claim
    (finding,) = elasticjob_file.claims(with_claim(4))(of, "team-a")
    assert (finding.level, words in finding.text) == (level, True)


def test_the_fields_of_a_file_are_checked_without_a_cluster() -> None:
    wrong = copy.deepcopy(JOB)
    wrong["spec"]["replicaSpecs"]["worker"]["minReplicas"] = 9
    levels = [(each.level, each.text) for each in elasticjob_file.fields("job.yaml", [JOB, wrong])]
    assert levels[0] == ("ok", "the fields of ElasticJob digits are valid")
    assert levels[1][0] == "problem"
    assert "spec.replicaSpecs.worker.minReplicas" in levels[1][1]
    assert [each.level for each in elasticjob_file.fields("job.yaml", [])] == ["problem"]
    assert elasticjob_file.jobs_of([{"kind": "List", "items": [JOB, 3]}, {"kind": "Pod"}, JOB]) == [JOB, JOB]


def test_the_api_server_is_asked_before_the_job_exists() -> None:
    of = Cluster()
    check = elasticjob_file.tried(JOB)
    assert [each.level for each in check(of, "team-a")] == ["ok"]
    of.refusal = "the webhook refused it"
    assert [(each.level, each.text) for each in check(of, "team-a")] == [("problem", "the webhook refused it")]
    of.objects["ElasticJob", "team-a", "digits"] = JOB
    assert ["exists already" in each.text for each in check(of, "team-a")] == [True]
