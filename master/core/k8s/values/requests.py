"""The RBAC verb, API group and resource of a request to the API server.

Method and path are read as the API server reads them, so the requests can be compared with the granted rules:
https://kubernetes.io/docs/reference/access-authn-authz/authorization/#determine-the-request-verb
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


class Request(NamedTuple):
    verb: str
    group: str
    """API group of the resource; empty for the core group."""
    resource: str
    """Resource with its subresource, such as `elasticjobs/status`; the path, such as `/version`, if there is no
    resource."""


def request_of(method: str, path: str, query: Collection[str] | Mapping[str, str] = ()) -> Request:
    """The request that method and path stand for. `query`: the names of the query parameters."""
    kind, *rest = path.strip("/").split("/")
    if kind == "api" and len(rest) >= 2:
        group, parts = "", rest[1:]
    elif kind == "apis" and len(rest) >= 3:
        group, parts = rest[0], rest[2:]
    else:
        return Request(method.lower(), "", path)
    if parts[0] == "namespaces" and len(parts) > 2:
        parts = parts[2:]
    resource, name, *sub = [*parts, ""] if len(parts) == 1 else parts
    return Request(_verb(method, bool(name), "watch" in query), group, "/".join([resource, *sub]))


def _verb(method: str, is_named: bool, is_watched: bool) -> str:
    if method == "GET":
        return "watch" if is_watched else "get" if is_named else "list"
    if method == "DELETE":
        return "delete" if is_named else "deletecollection"
    return _VERBS.get(method, method.lower())
