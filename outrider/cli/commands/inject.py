"""`outrider inject -f FILE`: what the webhook makes of a pod, and why, with no cluster at hand."""

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
"""In the place of the master's public key. No key is this one, so that no sidecar gets an answer by it."""
FIND_KEY = "kubectl -n outrider-system get secret outrider-master-curve -o 'jsonpath={.data.public}' | base64 -d"
PASSED_THROUGH = 1
"""Exit code where a pod was not injected."""


@click.command()
@click.option("-f", "--filename", "file", metavar="FILE", type=click.File(encoding="utf-8"), required=True,
              help="YAML or JSON: a Pod, or what has pod templates; - is the standard input.")  # fmt: skip
@click.option("--explain", is_flag=True, help="Say what is done and why, instead of the YAML.")
@click.option("-n", "--namespace", default="", help="Where the pods will be; else the document's own, else default.")
@click.option("--image", default=IMAGE, show_default=True, help="Of sidecar and hooks.")
@click.option("--pull-policy", type=click.Choice(["Always", "IfNotPresent", "Never"]), default="IfNotPresent",
              show_default=True, help="Of that image.")  # fmt: skip
@click.option("--endpoint", metavar="tcp://HOST:PORT", default=ENDPOINT, show_default=True, help="Of the master.")
@click.option(
    "--public-key", metavar="KEY", default=NO_KEY, help="The master's, 40 characters; needed to apply the YAML."
)
@click.option("--native-sidecar", is_flag=True, help="As an init container with restartPolicy Always (from 1.29 on).")
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
        raise UserError(f"{file.name}: there is no pod and no pod template in it, only {kinds or 'nothing'}")
    if explain:
        click.echo("\n\n".join(_explanation(each) for each in found))
    else:
        click.echo(written(document for document, _ in injected), nl=False)
        _tell(found, public_key)
    if any(each.injection.refused for each in found):
        raise SystemExit(PASSED_THROUGH)


def _explanation(found: Injected) -> str:
    lines = [found.where, *(f"  - {sentence}" for sentence in found.injection.explanation)]
    if found.counted_by:
        lines.append(
            f"  - the webhook gives each pod its rank index by {found.counted_by}; in what is printed here, which is "
            f"one template for all, it is left to the master"
        )
    if not found.asks and not found.injection.refused:
        lines.append(
            f'  - the webhook does so only with the label {INJECT}: "true" on the pod, or enabled on its namespace'
        )
    return "\n".join(lines)


def _tell(found: list[Injected], public_key: str) -> None:
    for each in found:
        if each.injection.refused:
            click.echo(f"outrider: {each.where} is passed through: {each.injection.refused}", err=True)
    if public_key == NO_KEY and any(each.injection.changed for each in found):
        click.echo(f"outrider: to apply this, give the master's --public-key: {FIND_KEY}", err=True)
