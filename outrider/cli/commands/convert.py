"""`outrider convert -f FILE`: other people's job files as ElasticJobs, and what of them has no counterpart."""

from __future__ import annotations

from typing import IO, Any

import click

from outrider.cli.conversion import KNOWN, Converted, converted, unpacked
from outrider.cli.errors import UserError
from outrider.cli.kube.yaml import documents_of, written
from outrider.master.core.k8s.elasticjob import validation


@click.command()
@click.option("-f", "--filename", "file", metavar="FILE", type=click.File(encoding="utf-8"), required=True,
              help="YAML or JSON; - is the standard input.")  # fmt: skip
def convert(file: IO[str]) -> None:
    """Print PyTorchJobs and TFJobs of KubeDL and Kubeflow and ElasticJobs of DLRover as ElasticJobs of Outrider.

    Other documents in FILE are printed as they are. What has no counterpart is said on the standard error.
    """
    found = [_converted(document, file.name) for document in unpacked(documents_of(file))]
    if not any(each.is_changed for each in found):
        kinds = ", ".join(dict.fromkeys(str(each.document.get("kind") or "no kind") for each in found))
        said = " ".join(note for each in found for note in each.notes) or f"known are {KNOWN}"
        raise UserError(f"{file.name}: there is nothing to convert in it, only {kinds or 'nothing'}; {said}")
    click.echo(written(each.document for each in found), nl=False)
    for each in found:
        metadata = each.document.get("metadata") or {}
        name = metadata.get("name") or metadata.get("generateName")
        for note in each.notes:
            click.echo(f"outrider: {name}: {note}", err=True)
        for problem in validation.problems(each.document) if each.is_changed else ():
            click.echo(f"outrider: {name}: to be mended: {problem}", err=True)


def _converted(document: dict[str, Any], name: str) -> Converted:
    try:
        return converted(document)
    except ValueError as error:
        raise UserError(f"{name}: {document.get('kind')}: {error}") from error
