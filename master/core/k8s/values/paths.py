"""Paths of the HTTP API: the only place where text from a user becomes part of a path.

A name must not contain what would end its segment. `/` and `%` are refused, as the API server refuses them itself
(https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#path-segment-names): it decodes a path before
it splits it, for routing and for authorisation, so an encoded `/` would still change the path. The rest is encoded.
"""

from __future__ import annotations

import re
from urllib.parse import quote

VERSION = re.compile(r"v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?")
"""Version of an API group, such as `v1beta1`:
https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/#version-priority."""
DNS = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
"""A DNS subdomain of any length: API groups and the names of almost all objects."""
_PLURAL = re.compile(r"[a-z]+")


class NotAPath(ValueError):
    """A part of a path is invalid; the message names the part and what it must be."""


def folder(api_version: str, plural: str, namespace: str = "") -> str:
    """The path of all objects of one kind, in one namespace or in all. `api_version`: such as `v1` or `apps/v1`. Raises
    NotAPath."""
    group, slash, version = api_version.rpartition("/")
    if not VERSION.fullmatch(version) or (slash and not DNS.fullmatch(group)) or not _PLURAL.fullmatch(plural):
        raise NotAPath(
            f"{api_version[:80]!r} {plural[:80]!r} must be the version and plural of an API, such as 'apps/v1' "
            f"'statefulsets'"
        )
    start = f"/apis/{group}/{version}" if slash else f"/api/{version}"
    return f"{start}/namespaces/{_segment(namespace)}/{plural}" if namespace else f"{start}/{plural}"


def named(folder: str, *names: str) -> str:
    """The path of one object, or with a second name that of its subresource. Raises NotAPath."""
    return "/".join([folder, *map(_segment, names)])


def _segment(name: str) -> str:
    if name in ("", ".", "..") or "/" in name or "%" in name:
        raise NotAPath(f"{name[:80]!r} must be a name: not empty, '.' or '..', and without '/' and '%'")
    return quote(name, safe="")
