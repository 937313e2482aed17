"""`outrider inject -f FILE`: shows how the webhook would change a pod, and why, without a cluster."""

from __future__ import annotations

from typing import IO

import click

from outrider.cli.errors import UserError
from outrider.cli.kube.yaml import documents_of, written
from outrider.master.core.k8s.injection.offline import Injected, inject_all
from outrider.master.core.k8s.injection.sidecar import Policy
from outrider.master.core.k8s.values.names import INJECT

IMAGE = "outrider/sidecar:dev"
ENDPOINT = "tcp://outrider-master.outrider-system.svc:7070"
NO_KEY = "0" * 40
"""A placeholder for the master's public key. No real key is this one, so a sidecar with it gets no answer."""
FIND_KEY = "kubectl -n outrider-system get secret outrider-master-curve -o 'jsonpath={.data.public}' | base64 -d"
PASSED_THROUGH = 1
"""Exit code if a pod was not injected."""


@click.command()
@click.option("-f", "--filename", "file", metavar="FILE", type=click.File(encoding="utf-8"), required=True,
              help="Read a Pod, or kinds with pod templates, from FILE (YAML or JSON; - is stdin).")  # fmt: skip
@click.option("--explain", is_flag=True, help="Print what changes and why, instead of the YAML.")
@click.option("-n", "--namespace", metavar="NS", default="", help="Namespace of the pods. Default: the document's own.")
@click.option("--image", metavar="IMAGE", default=IMAGE, help=f"Image of sidecar and hooks. Default: {IMAGE}.")
@click.option("--pull-policy", type=click.Choice(["Always", "IfNotPresent", "Never"]), default="IfNotPresent",
              metavar="POLICY", help="Pull policy of the image: Always, IfNotPresent (default) or Never.")  # fmt: skip
@click.option("--endpoint", metavar="tcp://HOST:PORT", default=ENDPOINT,
              help="Address of the master. Default: the Service of the manifests.")  # fmt: skip
@click.option("--public-key", metavar="KEY", default=NO_KEY,
              help="Public key of the master, 40 characters; needed to apply the YAML.")  # fmt: skip
@click.option("--native-sidecar", is_flag=True,
              help="Make the sidecar an init container with restartPolicy Always (Kubernetes >= 1.29).")  # fmt: skip
def inject(
    file: IO[str],
    explain: bool,
    namespace: str,
    image: str,
    pull_policy: str,
    endpoint: str,
    public_key: str,
    native_sidecar: bool,
) -> None:
    """Print a pod, or the pod templates of a job, as the webhook would change it."""
    documents = documents_of(file)
    policy = Policy(image, pull_policy, endpoint, public_key, native_sidecar)
    try:
        injected = [inject_all(document, namespace, policy) for document in documents]
    except ValueError as error:
        raise UserError(f"{file.name}: {error}") from error
    found = [each for _, of_document in injected for each in of_document]
    if not found:
        kinds = ", ".join(dict.fromkeys(str(document.get("kind") or "no kind") for document in documents))
        raise UserError(f"--filename {file.name}: must have a pod or a pod template, found only {kinds or 'nothing'}")
    if explain:
        click.echo("\n\n".join(_explanation(each) for each in found))
    else:
        click.echo(written(document for document, _ in injected), nl=False)
        _report(found, public_key)
    if any(each.injection.refused for each in found):
        raise SystemExit(PASSED_THROUGH)


def _explanation(found: Injected) -> str:
    lines = [found.where, *(f"  - {sentence}" for sentence in found.injection.explanation)]
    if found.counted_by:
        lines.append(
            f"  - the webhook takes the rank index of each pod from {found.counted_by}; this YAML is one template for "
            f"all pods, so the master will assign the rank indexes"
        )
    if not found.asks and not found.injection.refused:
        lines.append(
            f'  - the webhook changes the pod only with the label {INJECT}: "true" on the pod, or enabled on its '
            f"namespace"
        )
    return "\n".join(lines)


def _report(found: list[Injected], public_key: str) -> None:
    for each in found:
        if each.injection.refused:
            click.echo(f"outrider: {each.where} is not changed: {each.injection.refused}", err=True)
    if public_key == NO_KEY and any(each.injection.changed for each in found):
        click.echo(f"outrider: before you apply this, give the --public-key of the master: {FIND_KEY}", err=True)
