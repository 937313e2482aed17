"""Reads and writes YAML as Kubernetes does: a value that kubectl reads as a string must stay a string.

PyYAML follows YAML 1.1 strictly; Go's reader does not: it reads `1e-3` as a number and `2026-01-01` as a string. So
numbers are read as Go reads them, dates stay text, and every string that any reader could read as another type is
written in quotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import IO, Any

import yaml

from outrider.cli.errors import UserError

_TIMESTAMP, _FLOAT = "tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:float"
_DOUBTFUL = re.compile(
    r"[-+.]?[0-9][-+0-9_.,:eoxa-f]*|[-+]?\.(inf|nan)|~|null|y|n|yes|no|on|off|true|false", re.IGNORECASE
)
_ENDLESS = 1 << 20
"""The most characters of a line, so many that a command always stays on one line."""

MOST_VALUES = 1_000_000
"""The most values in a document: far more than the API server stores for any object."""


class _Loader(yaml.SafeLoader):
    pass


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_FLOAT, re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789"))


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = "|" if "\n" in text else '"' if _DOUBTFUL.fullmatch(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def read(stream: IO[str]) -> list[Any]:
    """All non-empty documents of a stream. Raises yaml.YAMLError."""
    try:
        documents = [document for document in yaml.load_all(stream, _Loader) if document is not None]
        for document in documents:
            if _count(document, {}) > MOST_VALUES:
                raise yaml.YAMLError(f"more than {MOST_VALUES} values after anchors are expanded")
    except RecursionError as error:
        raise yaml.YAMLError("nested too deeply") from error
    return documents


def _count(value: Any, counts: dict[int, int]) -> int:
    """The number of values after all anchors are expanded. `counts` has the counts so far by id; 0 for a value that is
    being counted."""
    if not isinstance(value, dict | list):
        return 1
    if counts.setdefault(id(value), -1) == 0:
        raise yaml.YAMLError("an anchor contains itself")
    if counts[id(value)] < 0:
        counts[id(value)] = 0
        inner = value.values() if isinstance(value, dict) else value
        counts[id(value)] = 1 + sum(_count(each, counts) for each in inner)
    return counts[id(value)]


def documents_of(file: IO[str]) -> list[dict[str, Any]]:
    """The documents in the file of a command; a UserError says what is wrong with it."""
    try:
        documents = read(file)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"--filename {file.name}: must be YAML or JSON: {' '.join(str(error).split())}") from error
    if not all(isinstance(document, dict) for document in documents):
        raise UserError(f"--filename {file.name}: each document must be an object with apiVersion, kind and metadata")
    return documents


def written(documents: Iterable[Any]) -> str:
    made = [yaml.dump(each, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_ENDLESS) for each in documents]
    return "---\n".join(made)
