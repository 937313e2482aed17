"""Paths of the HTTP API, put together here and nowhere else where a part of one is a user's text.

A name may not hold what would end its segment. `/` and `%` are refused, as the API server refuses them itself
(https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#path-segment-names): it decodes a path before
it splits it, for routing and for authorisation, so that a quoted `/` would still lead elsewhere. The rest is quoted.
"""

from __future__ import annotations

import re
from urllib.parse import quote

VERSION = re.compile(r"v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?")
"""Of an API group, as `v1beta1`:
https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/#version-priority."""
DNS = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
"""A DNS subdomain, but for its length: groups of APIs, and names of almost everything."""
_PLURAL = re.compile(r"[a-z]+")


class NotAPath(ValueError):
    """Part of a path is none; the sentence says which, and what it may be."""


def folder(api_version: str, plural: str, namespace: str = "") -> str:
    """Where all of one kind are, in one namespace or in all. `api_version`: `v1`, or `apps/v1`. Raises NotAPath."""
    group, slash, version = api_version.rpartition("/")
    if not VERSION.fullmatch(version) or (slash and not DNS.fullmatch(group)) or not _PLURAL.fullmatch(plural):
        raise NotAPath(
            f"{api_version[:80]!r} {plural[:80]!r} is no version and plural of an API, as 'apps/v1' 'statefulsets'"
        )
    start = f"/apis/{group}/{version}" if slash else f"/api/{version}"
    return f"{start}/namespaces/{_segment(namespace)}/{plural}" if namespace else f"{start}/{plural}"


def named(folder: str, *names: str) -> str:
    """One thing of a folder, or with a second name its subresource. Raises NotAPath."""
    return "/".join([folder, *map(_segment, names)])


def _segment(name: str) -> str:
    if name in ("", ".", "..") or "/" in name or "%" in name:
        raise NotAPath(f"{name[:80]!r} is no name: it may not be empty, '.' or '..', nor have '/' or '%'")
    return quote(name, safe="")
