"""What `kubectl apply -k manifests/` applies agrees with the code, and with Kubernetes from 1.20 on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from outrider.master.core.k8s.values import durations, names
from outrider.master.core.k8s.values.limits import MOST_MEMBERS
from outrider.master.core.k8s.values.names import Document
from outrider.master.core.spec import JobSpec
from outrider.master.kubernetes.auth import metrics_readers, secret_keys
from outrider.master.kubernetes.webhook import certificates, handover
from outrider.master.kubernetes.webhook import service as webhook_service
from outrider.master.kubernetes.webhook.http import DECIDE_SECONDS, Webhook
from outrider.runtime.settings import Environment
from outrider.wire.ids import JobName

ROOT = Path(__file__).resolve().parents[3]
MANIFESTS = ROOT / "manifests"
FILES = sorted(MANIFESTS.rglob("*.yaml"))
NAMESPACE = "outrider-system"


def documents(path: Path) -> list[Document]:
    return [document for document in yaml.load_all(path.read_text(), yaml.CSafeLoader) if document is not None]


BASE = [
    document
    for name in documents(MANIFESTS / "base" / "kustomization.yaml")[0]["resources"]
    for document in documents(MANIFESTS / "base" / name)
]


def the(kind: str, name: str = "") -> Document:
    (found,) = (each for each in BASE if each["kind"] == kind and name in ("", each["metadata"]["name"]))
    return found


# -- the files ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(MANIFESTS)))
def test_every_file_holds_documents(path: Path) -> None:
    found = documents(path)
    assert found
    assert all(isinstance(each, dict) and each.get("apiVersion") and each.get("kind") for each in found)


def test_every_file_is_applied() -> None:
    listed = documents(MANIFESTS / "base" / "kustomization.yaml")[0]["resources"]
    assert {*listed, "kustomization.yaml"} == {path.name for path in (MANIFESTS / "base").glob("*.yaml")}
    assert documents(MANIFESTS / "kustomization.yaml")[0]["resources"] == ["base"]


OVERLAYS = [*sorted((MANIFESTS / "overlays").iterdir()), ROOT / "tests" / "cluster" / "manifests"]


@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda path: str(path.name))
def test_an_overlay_begins_with_the_base_and_injects_its_own_image(overlay: Path) -> None:
    top, other = (documents(folder / "kustomization.yaml")[0] for folder in (MANIFESTS, overlay))
    assert (overlay / other["resources"][0]).resolve() == MANIFESTS / "base"
    assert other["replacements"] == top["replacements"]
    assert {each["name"] for each in other["images"]} == {each["name"] for each in top["images"]}


def test_an_image_that_nobody_has_named_resolves_nowhere() -> None:
    for container in CONTAINERS.values():
        registry = container["image"].partition("/")[0]
        assert registry.endswith(".invalid"), "RFC 2606: no name below it ever resolves"


# -- the schema -----------------------------------------------------------------------------------------------------
VERSION = the("CustomResourceDefinition", "elasticjobs.outrider.dev")["spec"]["versions"][0]
SCHEMA = VERSION["schema"]["openAPIV3Schema"]


def nodes(schema: Document, path: str = "") -> Iterator[tuple[str, Document]]:
    yield path, schema
    for name, inner in (schema.get("properties") or {}).items():
        yield from nodes(inner, f"{path}.{name}")
    for keyword in ("items", "additionalProperties"):
        if isinstance(schema.get(keyword), dict):
            yield from nodes(schema[keyword], f"{path}[{keyword}]")


def at(path: str) -> Document:
    return dict(nodes(SCHEMA))[path]


def test_the_schema_is_structural() -> None:
    """https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions: what the API
    server of any version demands before it applies defaults and prunes."""
    for path, node in nodes(SCHEMA):
        if node.get("x-kubernetes-int-or-string"):
            assert "type" not in node, path
            assert node["anyOf"] == [{"type": "integer"}, {"type": "string"}], path
        elif "type" not in node:  # true, false or a word
            assert node["x-kubernetes-preserve-unknown-fields"], path
            assert node["enum"], path
        else:
            assert node.get("type") in ("object", "array", "string", "integer", "number", "boolean"), path
            assert not {"anyOf", "allOf", "oneOf", "not"} & set(node), path
        assert not ("properties" in node and "additionalProperties" in node), path
        assert not {"$ref", "definitions", "dependencies", "patternProperties", "uniqueItems"} & set(node), path
        assert (node.get("type") == "array") == ("items" in node), path


def test_every_size_has_the_maximum_of_members() -> None:
    sizes = [
        node
        for path, node in nodes(SCHEMA)
        if path.startswith(".spec") and path.rpartition(".")[2] in ("replicas", "minReplicas", "maxReplicas")
    ]
    assert len(sizes) == 6
    assert {node.get("maximum") for node in sizes} == {MOST_MEMBERS}


def test_no_object_is_pruned_empty() -> None:
    for path, node in nodes(SCHEMA):
        if node.get("type") == "object" and path != ".metadata":
            assert node.keys() & {"properties", "additionalProperties", "x-kubernetes-preserve-unknown-fields"}, path


def test_nothing_needs_a_newer_api_server_than_1_20() -> None:
    assert "x-kubernetes-validations" not in (MANIFESTS / "base" / "elasticjobs.yaml").read_text().replace(
        "# x-kubernetes-validations does not", ""
    )
    stable = {
        "apiextensions.k8s.io/v1", "apps/v1", "v1", "rbac.authorization.k8s.io/v1", "admissionregistration.k8s.io/v1",
        "networking.k8s.io/v1", "scheduling.k8s.io/v1",
    }  # fmt: skip
    newer = {each["kind"] for each in BASE if each["apiVersion"] not in stable}
    older = documents(MANIFESTS / "components" / "kubernetes-1.20" / "budgets.yaml")
    assert newer == {each["kind"] for each in older} == {"PodDisruptionBudget"}
    assert {each["apiVersion"] for each in older} == {"policy/v1beta1"}
    assert [{**each, "apiVersion": "policy/v1"} for each in older] == [each for each in BASE if each["kind"] in newer]
    webhooks = [*the("MutatingWebhookConfiguration")["webhooks"], *the("ValidatingWebhookConfiguration")["webhooks"]]
    assert not any("matchConditions" in webhook for webhook in webhooks)


def test_every_field_of_the_schema_has_a_description() -> None:
    """So that `kubectl explain elasticjob.spec` and `.status` have an answer at every level."""
    for part in (".spec", ".status"):
        for path, node in nodes(at(part), part):
            assert node.get("description", "").endswith("."), path


def test_the_defaults_are_those_of_the_core() -> None:
    spec, core = ".spec", JobSpec(JobName("any"), 1, 1, 1)
    recovery = {
        "silentAfter": core.silent_after,
        "replaceAfter": core.replace_after,
        "stopGrace": core.stop_grace,
        "handlerGrace": core.handler_grace,
        "saveGrace": core.save_grace,
        "growPatience": core.grow_patience,
        "startPatience": core.start_patience,
    }
    for name, seconds in recovery.items():
        assert durations.parsed(at(f"{spec}.recovery.{name}")["default"]) == seconds, name
    assert at(f"{spec}.replicaSpecs[additionalProperties].restartLimit")["default"] == core.relaunch_limit
    assert at(f"{spec}.nodeUnit")["default"] == core.node_unit
    assert at(f"{spec}.spares")["default"] == core.spares


@pytest.mark.parametrize(
    "path", [".spec.nprocPerNode", ".spec.maxRestarts"]
    + [f".spec.recovery.hang.{phase}" for phase in ("step", "init", "checkpoint", "eval")]
    + [f".spec.replicaSpecs[additionalProperties].{name}" for name in ("replicas", "minReplicas", "maxReplicas")]
)  # fmt: skip
def test_what_means_something_by_being_left_out_has_no_default(path: str) -> None:
    assert "default" not in at(path)


def test_defaults_are_reached_and_fit() -> None:
    """A default below an object counts only where the object has one too."""
    for path, node in nodes(at(".spec"), ".spec"):
        defaulted = [name for name, inner in (node.get("properties") or {}).items() if "default" in inner]
        if defaulted and path != ".spec" and not path.endswith("]"):
            assert node.get("default") == {}, path
        if "default" in node and "pattern" in node:
            assert re.search(node["pattern"], str(node["default"])), path


@pytest.mark.parametrize(
    "text", ["3", "2.5", "0", "10m", "1h30m", "2.5s", "500ms", "", "-1", "soon", "1h30", "m", "5 m"]
)
def test_a_duration_may_be_what_the_master_reads(text: str) -> None:
    pattern = at(".spec.recovery.silentAfter")["pattern"]
    assert bool(re.search(pattern, text)) == (durations.parsed(text) is not None)


def test_names_are_those_of_the_code() -> None:
    crd = the("CustomResourceDefinition", "elasticjobs.outrider.dev")
    group, version = names.GROUP_VERSION.split("/")
    assert crd["metadata"]["name"] == f"{names.PLURAL}.{group}"
    assert (crd["spec"]["group"], VERSION["name"]) == (group, version)
    assert (crd["spec"]["names"]["kind"], crd["spec"]["names"]["plural"]) == (names.KIND, names.PLURAL)
    assert crd["spec"]["names"]["shortNames"] == ["ej"]


def test_scale_and_columns_name_fields_that_there_are() -> None:
    scale, known = VERSION["subresources"]["scale"], dict(nodes(SCHEMA))
    worker = scale["specReplicasPath"].replace(".worker.", "[additionalProperties].")
    for path in (worker, scale["statusReplicasPath"], scale["labelSelectorPath"]):
        assert path in known
    columns = VERSION["additionalPrinterColumns"]
    assert [column["name"] for column in columns if not column.get("priority")] == [
        "Phase", "Workers", "Generation", "Step", "Restarts", "Goodput", "Age"
    ]  # fmt: skip
    for column in columns:
        if column["name"] != "Age":
            assert known[column["jsonPath"]]["type"] == column["type"]


# -- rights ---------------------------------------------------------------------------------------------------------
ROLES = [each for each in BASE if each["kind"] in ("Role", "ClusterRole")]


def test_no_right_is_given_for_everything() -> None:
    for role in ROLES:
        for rule in role["rules"]:
            assert "*" not in str(rule), role["metadata"]["name"]
            assert not {"escalate", "bind", "impersonate"} & set(rule["verbs"])
            assert not {"pods/exec", "pods/eviction", "nodes/proxy"} & set(rule.get("resources", ()))


def test_secrets_can_only_be_read_by_name_and_at_home() -> None:
    rules = [(role["kind"], rule) for role in ROLES for rule in role["rules"] if "secrets" in rule.get("resources", ())]
    assert {kind for kind, _ in rules} == {"Role"}
    known = {certificates.SECRET, *secret_keys.PARTS}
    read_by_the_webhook = {certificates.SECRET, secret_keys.PUBLIC}
    for _, rule in rules:
        assert rule["verbs"] == ["create"] or set(rule["resourceNames"]) in (known, read_by_the_webhook)


def test_who_may_read_the_metrics_may_read_the_path_that_is_served() -> None:
    (rule,) = the("ClusterRole", "outrider-metrics-reader")["rules"]
    assert rule == {"nonResourceURLs": [metrics_readers.PATH], "verbs": ["get"]}


def test_the_lease_and_the_configurations_are_the_ones_that_the_code_names() -> None:
    rules = the("Role", "outrider-master")["rules"]
    lease = [rule for rule in rules if rule["resources"] == ["leases"] and "resourceNames" in rule]
    assert [rule["resourceNames"] for rule in lease] == [["outrider-master"]]
    for kind, path in zip(("Mutating", "Validating"), certificates.CONFIGURATIONS, strict=True):
        assert the(f"{kind}WebhookConfiguration")["metadata"]["name"] == path.rpartition("/")[2]


@pytest.mark.parametrize("name", ["outrider-master", "outrider-webhook"])
def test_the_roles_are_those_of_the_account_of_their_name(name: str) -> None:
    assert the("Deployment", name)["spec"]["template"]["spec"]["serviceAccountName"] == name
    account = the("ServiceAccount", name)["metadata"]
    for kind in ("RoleBinding", "ClusterRoleBinding"):
        binding = the(kind, name)
        (subject,) = binding["subjects"]
        assert (subject["name"], subject["namespace"]) == (account["name"], account["namespace"])
        assert binding["roleRef"]["name"] == name
        assert the(binding["roleRef"]["kind"], name)["rules"]


# -- the pods and the ways to them ----------------------------------------------------------------------------------
DEPLOYMENTS = {part: the("Deployment", f"outrider-{part}") for part in ("master", "webhook")}
PODS = {part: deployment["spec"]["template"] for part, deployment in DEPLOYMENTS.items()}
CONTAINERS = {part: pod["spec"]["containers"][0] for part, pod in PODS.items()}
PORTS = {
    part: {port["name"]: port["containerPort"] for port in container["ports"]} for part, container in CONTAINERS.items()
}
BEFORE = {"app.kubernetes.io/name": "outrider", "app.kubernetes.io/component": "master"}
"""The labels of masters that had the webhook in their own process."""


def test_everything_is_at_home() -> None:
    cluster_wide = {"Namespace", "CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding"}
    cluster_wide |= {"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "PriorityClass"}
    for each in BASE:
        wanted = None if each["kind"] in cluster_wide else NAMESPACE
        assert each["metadata"].get("namespace") == wanted, each["kind"]
    assert the("Namespace")["metadata"]["name"] == NAMESPACE


@pytest.mark.parametrize("part", DEPLOYMENTS)
def test_a_replica_starts_with_what_it_is_told(part: str, tmp_path: Path) -> None:
    container = CONTAINERS[part]
    paths = [each["valueFrom"]["fieldRef"] for each in container["env"] if "valueFrom" in each]
    assert all(path.get("apiVersion") == "v1" for path in paths), "or a server-side apply over a plain one conflicts"
    told = {each["name"]: each.get("value") or each["valueFrom"]["fieldRef"]["fieldPath"] for each in container["env"]}
    settings = pytest.importorskip("outrider.master.kubernetes.settings")
    known = set(re.findall(r'"([A-Z_]+)"', Path(settings.__file__).read_text())) | {"OUTRIDER_PLATFORM", "POD_IP"}
    assert set(told) <= known
    assert told["OUTRIDER_PLATFORM"] == "kubernetes"
    found = settings.read(Environment(told | {"OUTRIDER_JOURNALS": str(tmp_path)}))
    assert (found.pod, found.namespace) == ("metadata.name", "metadata.namespace")
    assert found.serves == part
    assert (found.image, found.pull_policy) == (container["image"], container["imagePullPolicy"])
    ports = {"sidecars": found.sidecars_port, "webhook": found.webhook_port, "http": found.http_port}
    assert PORTS[part].items() <= ports.items()
    assert settings.read(Environment({**told, "POD_NAMESPACE": NAMESPACE})).endpoint == (
        f"tcp://{the('Service', 'outrider-master')['metadata']['name']}.{NAMESPACE}.svc:7070"
    )


@pytest.mark.parametrize("part", DEPLOYMENTS)
def test_a_replica_writes_nowhere_but_in_tmp(part: str) -> None:
    assert CONTAINERS[part]["securityContext"]["readOnlyRootFilesystem"] is True
    assert CONTAINERS[part]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert PODS[part]["spec"]["securityContext"]["runAsUser"] == 65532
    assert [mount["mountPath"] for mount in CONTAINERS[part]["volumeMounts"]] == ["/tmp"]


def test_services_select_the_pods() -> None:
    sidecars, webhook = (the("Service", name)["spec"] for name in ("outrider-master", certificates.SERVICE))
    assert sidecars["selector"] == BEFORE | {names.LEADER: "true"}
    assert sidecars["publishNotReadyAddresses"] is True
    assert [(port["port"], PORTS["master"][port["targetPort"]]) for port in sidecars["ports"]] == [(7070, 7070)]
    assert [(port["port"], PORTS["webhook"][port["targetPort"]]) for port in webhook["ports"]] == [(443, 8443)]


def test_the_webhook_moves_from_masters_that_served_it_without_a_change_of_its_service() -> None:
    """The endpoints of a Service are the pods that it selects and that have the port's name."""
    (port,) = the("Service", certificates.SERVICE)["spec"]["ports"]
    assert the("Service", certificates.SERVICE)["spec"]["selector"] == BEFORE
    assert BEFORE.items() <= PODS["webhook"]["metadata"]["labels"].items()
    assert port["targetPort"] in PORTS["webhook"]
    assert port["targetPort"] not in PORTS["master"]
    assert handover.PODS.items() <= PODS["webhook"]["metadata"]["labels"].items()
    assert DEPLOYMENTS["master"]["spec"]["selector"]["matchLabels"] == BEFORE, "it cannot be changed"


def test_a_drain_takes_one_replica_of_a_part_and_its_class_is_there() -> None:
    for part, pod in PODS.items():
        labels = pod["metadata"]["labels"].items()
        budgets = [each["spec"] for each in BASE if each["kind"] == "PodDisruptionBudget"]
        (own,) = (
            spec for spec in budgets if spec["selector"]["matchLabels"].items() <= labels
        )  # of two, none would go
        assert own["maxUnavailable"] == 1
        assert DEPLOYMENTS[part]["spec"]["replicas"] == 2
        assert pod["spec"]["priorityClassName"] == the("PriorityClass")["metadata"]["name"]
    assert 0 < the("PriorityClass")["value"] < 1_000_000_000, "the system's own begin there"


def test_each_deployment_selects_its_own_pods_and_ends_none_before_another_is_ready() -> None:
    for part, deployment in DEPLOYMENTS.items():
        labels = PODS[part]["metadata"]["labels"]
        assert labels[names.PART] == part
        assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items()
        assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    own = DEPLOYMENTS["webhook"]["spec"]["selector"]["matchLabels"]
    assert not own.items() <= PODS["master"]["metadata"]["labels"].items()
    leaving = webhook_service.LEAVING_SECONDS
    assert PODS["webhook"]["spec"]["terminationGracePeriodSeconds"] >= leaving + DECIDE_SECONDS


@pytest.mark.parametrize("part", DEPLOYMENTS)
def test_a_replica_may_take_two_minutes_to_start(part: str) -> None:
    """A kubelet may count failed probes of a container on in the next one: one more would end it while it starts."""
    starting, living = CONTAINERS[part]["startupProbe"], CONTAINERS[part]["livenessProbe"]
    assert starting["httpGet"] == living["httpGet"] == {"path": "/healthz", "port": "http"}
    assert starting["periodSeconds"] * starting["failureThreshold"] >= 120
    assert "initialDelaySeconds" not in living, "the startup probe holds it back"


# -- the webhooks ---------------------------------------------------------------------------------------------------
def webhooks() -> Iterator[tuple[str, Any]]:
    for kind in ("Mutating", "Validating"):
        for webhook in the(f"{kind}WebhookConfiguration")["webhooks"]:
            yield kind, webhook


def test_every_webhook_leads_to_a_path_that_is_served_under_a_name_of_the_certificate() -> None:
    application = Webhook(lambda *_: (None, []), lambda job, _: job, lambda *_: []).application()
    served = {resource.canonical for resource in application.router.resources()}
    asked = {webhook["clientConfig"]["service"]["path"] for _, webhook in webhooks()}
    assert asked == served
    for _, webhook in webhooks():
        called = webhook["clientConfig"]["service"]
        assert f"{called['name']}.{called['namespace']}.svc" in certificates.names_of(NAMESPACE)


def test_no_pod_of_the_control_plane_is_asked_about() -> None:
    for _, webhook in webhooks():
        if webhook["rules"][0]["resources"] == ["pods"]:
            for namespace in (*names.CONTROL_PLANE, NAMESPACE):
                label = {"kubernetes.io/metadata.name": namespace, names.INJECT: "enabled"}
                assert not selected(webhook, label, {names.INJECT: "true"})
                assert not selected(webhook, label, {})


def test_no_webhook_ever_holds_anything_up() -> None:
    for kind, webhook in webhooks():
        assert webhook["failurePolicy"] == "Ignore"
        assert webhook["sideEffects"] == "None"
        assert webhook["timeoutSeconds"] == 5
        assert webhook["admissionReviewVersions"] == ["v1"]
        assert kind == "Validating" or webhook["reinvocationPolicy"] == "IfNeeded"
        assert "caBundle" not in webhook["clientConfig"]


def selected(webhook: Document, namespace: dict[str, str], pod: dict[str, str]) -> bool:
    """As the API server reads label selectors; NotIn holds for what has no such label."""

    def matches(selector: Document, labels: dict[str, str]) -> bool:
        return all(
            (labels.get(each["key"]) in each["values"]) == (each["operator"] == "In")
            for each in selector.get("matchExpressions", [])
        )

    return matches(webhook["namespaceSelector"], namespace) and matches(webhook["objectSelector"], pod)


@pytest.mark.parametrize(
    ("namespace", "pod", "asked"),
    [
        ({}, {}, 0),
        ({}, {names.INJECT: "true"}, 1),
        ({}, {names.INJECT: "false"}, 0),
        ({names.INJECT: "enabled"}, {}, 1),
        ({names.INJECT: "enabled"}, {names.INJECT: "true"}, 1),
        ({names.INJECT: "enabled"}, {names.INJECT: "false"}, 0),
        ({names.INJECT: "disabled"}, {}, 0),
        ({"kubernetes.io/metadata.name": "kube-system", names.INJECT: "enabled"}, {names.INJECT: "true"}, 0),
        (the("Namespace")["metadata"]["labels"], {names.INJECT: "true"}, 0),
    ],
)
def test_a_pod_is_asked_about_once_where_it_or_its_namespace_wants_it(
    namespace: dict[str, str], pod: dict[str, str], asked: int
) -> None:
    about_pods = [each for _, each in webhooks() if each["rules"][0]["resources"] == ["pods"]]
    assert sum(selected(webhook, namespace, pod) for webhook in about_pods) == asked
