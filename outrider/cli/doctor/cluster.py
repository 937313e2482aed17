"""Checks of a cluster: is Outrider installed and served there, and would it supervise jobs of this namespace."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import IO, Protocol

import outrider
from outrider.cli.doctor import elasticjob_file
from outrider.cli.doctor.findings import Finding, ok, problem, warning
from outrider.cli.doctor.network_policies import Pod, allows, matches
from outrider.cli.doctor.reader import NoRight, Reader
from outrider.cli.errors import UserError
from outrider.cli.kube.yaml import documents_of
from outrider.cli.text import plural
from outrider.master.core.k8s.elasticjob import schema
from outrider.master.core.k8s.values import modes
from outrider.master.core.k8s.values.fields import entries, mapping
from outrider.master.core.k8s.values.names import CONTROL_PLANE, DOMAIN, INJECT, JOB, PART, PLURAL, ROLE, Document

SYSTEM = "outrider-system"
MASTER, WEBHOOK = "outrider-master", "outrider-webhook"
ACCOUNT = f"system:serviceaccount:{SYSTEM}:{MASTER}"
APPLY = "an administrator installs Outrider: kubectl apply -k manifests/overlays/image"
LABELS = {"app.kubernetes.io/name": "outrider", "app.kubernetes.io/component": "master", PART: "master"}
DNS = Pod("kube-system", {"k8s-app": "kube-dns"}, {"kubernetes.io/metadata.name": "kube-system"}, {"dns": 53})
LOGS = f"kubectl -n {SYSTEM} logs --prefix -l {PART}="
"""Needs the part's name at its end. The selector of the masters' Deployment matches pods of the webhook too
(docs/adr/0031), and `kubectl logs deployment/NAME` shows any one pod of a selector."""
ISOLATED = "if the cluster's network enforces policies"
NEEDED = (("create", DOMAIN, PLURAL), ("get", DOMAIN, PLURAL), ("list", DOMAIN, PLURAL), ("delete", DOMAIN, PLURAL))
USEFUL = (
    ("watch", DOMAIN, PLURAL), ("update", DOMAIN, PLURAL), ("patch", DOMAIN, PLURAL), ("list", "", "pods"),
    ("get", "", "pods/log"), ("create", "", "pods/exec"), ("list", "", "events"),
)  # fmt: skip
"""Rights of the user: without the first no job can be started and seen, without the others some commands fail."""
OF_THE_MASTER = (
    ("create", "", "pods"), ("delete", "", "pods"), ("watch", "", "pods"), ("patch", "", "pods"),
    ("watch", DOMAIN, PLURAL), ("patch", DOMAIN, f"{PLURAL}/status"), ("create", "", "events"),
)  # fmt: skip


class Look(Protocol):
    """What the checks need of a `reader.Reader`."""

    def version(self) -> str: ...
    def is_served(self) -> bool: ...
    def get(self, kind: str, name: str, namespace: str = "") -> Document | None: ...
    def list(self, kind: str, namespace: str) -> list[Document]: ...
    def may(self, verb: str, group: str, resource: str, namespace: str, user: str = "") -> bool: ...
    def tried(self, job: Document, namespace: str) -> None: ...


Check = Callable[[Look, str], Iterator[Finding]]


def checked(namespace: str | None, file: IO[str] | None) -> Iterator[Finding]:
    """All findings about kubectl's cluster and one namespace of it, and about the ElasticJobs of a file."""
    jobs = elasticjob_file.jobs_of(documents_of(file)) if file is not None else []
    if file is not None:
        yield from elasticjob_file.fields(file.name, jobs)
    try:
        look = Reader()
        version = look.version()
    except (NoRight, UserError) as error:
        yield problem("API server", f"cannot be asked: {error}", "check KUBECONFIG: kubectl get namespaces")
        return
    yield ok("API server", f"Kubernetes {version}")
    yield from findings(look, namespace or look.namespace)
    for job in jobs:
        of_job = namespace or str(mapping(job.get("metadata")).get("namespace") or look.namespace)
        yield from _each(
            look, of_job, (("volumes", elasticjob_file.claims(job)), ("dry run", elasticjob_file.tried(job)))
        )


def findings(look: Look, namespace: str) -> Iterator[Finding]:
    """The findings about a cluster whose API server answers."""
    yield from _each(look, namespace, CHECKS)


def _each(look: Look, namespace: str, checks: tuple[tuple[str, Check], ...]) -> Iterator[Finding]:
    for name, check in checks:
        try:
            yield from check(look, namespace)
        except NoRight as missing:
            yield warning(name, f"cannot look: you may not {missing}", f"ask for the right to {missing}, or ask an "
                          f"administrator to run outrider doctor --cluster")  # fmt: skip
        except UserError as error:
            yield warning(name, f"cannot look: {error.message}", "see the reason")


# -- what an administrator installs --------------------------------------------------------------------------------
def definition(look: Look, namespace: str) -> Iterator[Finding]:
    """The CustomResourceDefinition, and whether it has the fields that this release has."""
    try:
        found = look.get("CustomResourceDefinition", f"{PLURAL}.{DOMAIN}")
    except NoRight:
        if look.is_served():
            yield ok("ElasticJob", "defined; its fields are not visible to you")
            return
        found = None
    if found is None:
        yield problem("ElasticJob", "the kind is not defined in this cluster", APPLY)
        return
    versions = [mapping(each) for each in entries(mapping(found.get("spec")).get("versions"))]
    served = [each for each in versions if each.get("served")]
    spec = mapping(mapping(mapping(mapping(served[0] if served else {}).get("schema")).get("openAPIV3Schema"))
                   .get("properties")).get("spec")  # fmt: skip
    lacking = sorted(set(schema.SPEC["properties"]) - set(mapping(mapping(spec).get("properties"))))
    if lacking:
        yield warning("ElasticJob", f"the cluster's definition lacks fields of this release: {', '.join(lacking)}",
                      "have Outrider upgraded there, or use the command line of its release")  # fmt: skip
    else:
        yield ok("ElasticJob", f"defined, version {', '.join(str(each.get('name')) for each in served)}")


def master(look: Look, namespace: str) -> Iterator[Finding]:
    """The masters: ready, one of them leads, and its release is that of this command line."""
    yield from _deployment(look, MASTER)
    leaders = _addresses(look.get("Endpoints", MASTER, SYSTEM))
    if not leaders:
        yield problem("leader", f"the Service {SYSTEM}/{MASTER} has no address: no master leads",
                      f"{LOGS}master")  # fmt: skip


def _deployment(look: Look, name: str) -> Iterator[Finding]:
    found = look.get("Deployment", name, SYSTEM)
    check = name.removeprefix("outrider-")
    if found is None:
        yield problem(check, f"the Deployment {SYSTEM}/{name} does not exist", APPLY)
        return
    status, spec = mapping(found.get("status")), mapping(found.get("spec"))
    ready, wanted = status.get("readyReplicas") or 0, spec.get("replicas")
    container = _container(found)
    image = str(container.get("image") or "")
    if not ready:
        yield problem(check, f"no pod of {SYSTEM}/{name} is ready ({image})",
                      f"kubectl -n {SYSTEM} describe pods -l {PART}={check}")  # fmt: skip
        return
    yield from _release(check, f"{ready} of {wanted} ready ({image})", image)


def _container(deployment: Document) -> Document:
    template = mapping(mapping(mapping(deployment.get("spec")).get("template")).get("spec"))
    containers = entries(template.get("containers"))
    return mapping(containers[0]) if containers else {}


def _release(check: str, text: str, image: str) -> Iterator[Finding]:
    """Compares the image's tag with this release; from a tag that is not a version nothing can be concluded."""
    tag = image.rpartition("/")[2].partition("@")[0].partition(":")[2]
    if re.fullmatch(r"v?\d+(\.\d+)+\S*", tag) and tag.removeprefix("v") != outrider.__version__:
        yield warning(check, f"{text}, but this command line is {outrider.__version__}",
                      "install the command line of the cluster's release, or have the cluster upgraded")  # fmt: skip
    else:
        yield ok(check, text)


def _addresses(endpoints: Document | None) -> list[str]:
    subsets = [mapping(each) for each in entries(mapping(endpoints).get("subsets"))]
    return [str(mapping(address).get("ip")) for each in subsets for address in entries(each.get("addresses"))]


def webhook(look: Look, namespace: str) -> Iterator[Finding]:
    """The webhook: registered with its CA, and served."""
    yield from _deployment(look, WEBHOOK)
    fix = f"{LOGS}webhook"
    if not _addresses(look.get("Endpoints", WEBHOOK, SYSTEM)):
        yield problem("webhook", f"the Service {SYSTEM}/{WEBHOOK} has no address: labelled pods get no sidecar", fix)


def registration(look: Look, namespace: str) -> Iterator[Finding]:
    """The webhook's registration, and which pods of the namespace it covers."""
    found = look.get("MutatingWebhookConfiguration", "outrider")
    if found is None:
        yield problem("injection", "the MutatingWebhookConfiguration outrider does not exist", APPLY)
        return
    hooks = [mapping(each) for each in entries(found.get("webhooks"))]
    if not all(mapping(each.get("clientConfig")).get("caBundle") for each in hooks):
        yield problem("injection", "the registration of the webhook has no CA yet, so the API server does not trust it",
                      f"a master writes it: {LOGS}master")  # fmt: skip
        return
    home = mapping(look.get("Namespace", namespace))
    labels = mapping(mapping(home.get("metadata")).get("labels"))
    labels = {"kubernetes.io/metadata.name": namespace, **labels}
    covers = {str(each.get("name")).partition(".")[0]: matches(mapping(each.get("namespaceSelector")), labels)
              for each in hooks}  # fmt: skip
    if covers.get("namespaces"):
        yield ok("injection", f'each pod of {namespace} gets a sidecar, unless its label {INJECT} is "false"')
    elif covers.get("pods"):
        yield ok("injection", f'pods of {namespace} with the label {INJECT}: "true" get a sidecar')
    else:
        yield problem("injection", f"the webhook does not cover the namespace {namespace}", "use another namespace: -n")


# -- the namespace -------------------------------------------------------------------------------------------------
def home_of_jobs(look: Look, namespace: str) -> Iterator[Finding]:
    """The namespace exists, and nothing switches supervision off there."""
    if namespace in (*CONTROL_PLANE, SYSTEM):
        yield problem("namespace", f"Outrider supervises nothing in {namespace}", "use another namespace: -n")
        return
    found = look.get("Namespace", namespace)
    if found is None:
        yield problem("namespace", f"{namespace} does not exist", f"kubectl create namespace {namespace}")
        return
    notes = mapping(mapping(found.get("metadata")).get("annotations"))
    mode = modes.mode_of(modes.SUPERVISE, {"metadata": {"namespace": namespace}}, (), notes)
    if mode.why:
        yield problem("namespace", f"jobs of {namespace} are not supervised: {mode.why}", "remove the annotation")
    else:
        yield ok("namespace", f"{namespace} exists")


def settings(look: Look, namespace: str) -> Iterator[Finding]:
    """The master's settings cover the namespace."""
    found = look.get("Deployment", MASTER, SYSTEM)
    values = {str(mapping(each).get("name")): str(mapping(each).get("value") or "")
              for each in entries(_container(found or {}).get("env"))}  # fmt: skip
    watched = [each.strip() for each in values.get("OUTRIDER_NAMESPACES", "").split(",") if each.strip()]
    if watched and namespace not in watched:
        yield problem("settings", f"the master watches only {', '.join(watched)}, not {namespace}",
                      "use one of these, or have OUTRIDER_NAMESPACES extended (docs/how-to/namespaced.md)")  # fmt: skip
    elif (mode := values.get(modes.SETTING, modes.SUPERVISE)) != modes.SUPERVISE:
        yield problem("settings", f"the master's {modes.SETTING} is {mode}: no job is supervised",
                      f"kubectl -n {SYSTEM} set env deployment --all {modes.SETTING}=supervise")  # fmt: skip


def rights(look: Look, namespace: str) -> Iterator[Finding]:
    """The user's own rights in the namespace."""
    missing = [_right(each) for each in NEEDED if not look.may(*each, namespace)]
    lesser = [_right(each) for each in USEFUL if not look.may(*each, namespace)]
    if missing:
        yield problem("your rights", f"in {namespace} you may not {', '.join(missing)}",
                      f"ask for a RoleBinding in {namespace} to the ClusterRole edit or outrider-edit")  # fmt: skip
    if lesser:
        yield warning("your rights", f"in {namespace} you may not {', '.join(lesser)}: some commands will fail",
                      f"ask for a RoleBinding in {namespace} to the ClusterRole edit")  # fmt: skip
    if not missing and not lesser:
        yield ok("your rights", f"you may create, see and change ElasticJobs and their pods in {namespace}")


def rights_of_the_master(look: Look, namespace: str) -> Iterator[Finding]:
    """The rights of the master's service account in the namespace."""
    missing = [_right(each) for each in OF_THE_MASTER if not look.may(*each, namespace, ACCOUNT)]
    if missing:
        yield problem("master's rights", f"in {namespace} the master may not {', '.join(missing)}",
                      f"have the ClusterRole {MASTER} bound there (docs/how-to/namespaced.md)")  # fmt: skip
    else:
        yield ok("master's rights", f"the master may supervise jobs in {namespace}")


def _right(of: tuple[str, str, str]) -> str:
    verb, group, resource = of
    return f"{verb} {resource}" + (f".{group}" if group else "")


def network(look: Look, namespace: str) -> Iterator[Finding]:
    """NetworkPolicies of the namespace let members reach their master, the cluster's DNS and each other."""
    policies = look.list("NetworkPolicy", namespace)
    home = mapping(mapping(look.get("Namespace", namespace)).get("metadata"))
    labels = {"kubernetes.io/metadata.name": namespace, **mapping(home.get("labels"))}
    member = Pod(namespace, {JOB: "any", ROLE: "worker"}, labels)
    system = {"app.kubernetes.io/name": "outrider", "kubernetes.io/metadata.name": SYSTEM}
    leader = Pod(SYSTEM, LABELS, system, {"sidecars": 7070})
    targets = (("the master", leader, 7070, "TCP"), ("each other", member, 20_000, "TCP"), ("DNS", DNS, 53, "UDP"))
    closed = [(what, f"{what} ({port}/{protocol})") for what, target, port, protocol in targets
              if not allows(policies, member, target, port, protocol)]  # fmt: skip
    names = ", ".join(str(mapping(each.get("metadata")).get("name")) for each in policies)
    if not closed:
        count = plural(len(policies), "NetworkPolicy", "NetworkPolicies")
        yield ok("network", f"{count} in {namespace}; none blocks members")
        return
    text = f"policies of {namespace} ({names}) keep members from {', '.join(each for _, each in closed)}, {ISOLATED}"
    fix = f"kubectl -n {namespace} apply -f examples/network/policies.yaml (docs/how-to/network.md)"
    if [what for what, _ in closed] == ["DNS"]:  # of a DNS outside kube-system nothing is known
        yield warning("network", text, fix)
    else:
        yield problem("network", text, fix)


def names(look: Look, namespace: str) -> Iterator[Finding]:
    """The cluster's DNS is served: sidecars look up the master's Service."""
    if _addresses(look.get("Endpoints", "kube-dns", "kube-system")):
        yield ok("DNS", "the Service kube-system/kube-dns is served")
    else:
        yield warning("DNS", "the Service kube-system/kube-dns has no address",
                      f"try it in a pod: getent hosts {MASTER}.{SYSTEM}.svc")  # fmt: skip


CHECKS: tuple[tuple[str, Check], ...] = (
    ("ElasticJob", definition), ("master", master), ("webhook", webhook), ("injection", registration),
    ("namespace", home_of_jobs), ("settings", settings), ("your rights", rights),
    ("master's rights", rights_of_the_master), ("network", network), ("DNS", names),
)  # fmt: skip
