"""`outrider convert -f FILE`: converts job files of other operators to ElasticJobs, and names what is left out."""

from __future__ import annotations

from typing import IO, Any

import click

from outrider.cli.conversion import KNOWN, Converted, converted, unpacked
from outrider.cli.errors import UserError
from outrider.cli.kube.yaml import documents_of, written
from outrider.master.core.k8s.elasticjob import validation


@click.command()
@click.option("-f", "--filename", "file", metavar="FILE", type=click.File(encoding="utf-8"), required=True,
              help="Read YAML or JSON from FILE; - is the standard input.")  # fmt: skip
def convert(file: IO[str]) -> None:
    """Convert PyTorchJobs and TFJobs of KubeDL and Kubeflow, and ElasticJobs of DLRover, to ElasticJobs of Outrider.

    The result is printed. Other documents in FILE are printed unchanged. Fields without a counterpart are reported on
    the standard error.
    """
    found = [_converted(document, file.name) for document in unpacked(documents_of(file))]
    if not any(each.is_changed for each in found):
        kinds = ", ".join(dict.fromkeys(str(each.document.get("kind") or "no kind") for each in found))
        advice = " ".join(note for each in found for note in each.notes) or f"supported: {KNOWN}"
        raise UserError(
            f"--filename {file.name}: must have a job to convert, found only {kinds or 'nothing'}; {advice}"
        )
    click.echo(written(each.document for each in found), nl=False)
    for each in found:
        metadata = each.document.get("metadata") or {}
        name = metadata.get("name") or metadata.get("generateName")
        for note in each.notes:
            click.echo(f"outrider: {name}: {note}", err=True)
        for problem in validation.problems(each.document) if each.is_changed else ():
            click.echo(f"outrider: {name}: must be corrected: {problem}", err=True)


def _converted(document: dict[str, Any], name: str) -> Converted:
    try:
        return converted(document)
    except ValueError as error:
        raise UserError(f"{name}: {document.get('kind')}: {error}") from error
