"""YAML as Kubernetes reads and writes it: what kubectl takes for a string must come back as one.

PyYAML knows YAML 1.1 by the letter, Go's reader does not: it takes `1e-3` for a number and `2026-01-01` for a string.
So numbers are read as Go reads them, dates stay text, and every string that any reader could take for something else is
written in quotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import IO, Any

import yaml

_TIMESTAMP, _FLOAT = "tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:float"
_DOUBTFUL = re.compile(
    r"[-+.]?[0-9][-+0-9_.,:eoxa-f]*|[-+]?\.(inf|nan)|~|null|y|n|yes|no|on|off|true|false", re.IGNORECASE
)
_ENDLESS = 1 << 20
"""Characters of a line: a command stays on one."""


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
    """All documents of a stream that are not empty. Raises yaml.YAMLError."""
    return [document for document in yaml.load_all(stream, _Loader) if document is not None]


def written(documents: Iterable[Any]) -> str:
    made = [yaml.dump(each, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_ENDLESS) for each in documents]
    return "---\n".join(made)
