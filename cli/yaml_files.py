"""Files of Kubernetes documents, as commands are given them."""

from __future__ import annotations

from typing import IO, Any

from cli.errors import UserError


def documents_of(file: IO[str]) -> list[dict[str, Any]]:
    reader = pod_yaml()
    try:
        documents = reader.read(file)
    except (reader.yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{file.name} is no YAML: {' '.join(str(error).split())}") from error
    if not all(isinstance(document, dict) for document in documents):
        raise UserError(f"{file.name}: each document must be an object with apiVersion, kind and metadata")
    return list(documents)


def pod_yaml() -> Any:
    """Late, because PyYAML comes with an extra."""
    try:
        from cli import pod_yaml
    except ModuleNotFoundError as error:
        raise UserError(f"{error.name} is not installed: pip install 'outrider[kubernetes]'") from error
    return pod_yaml
