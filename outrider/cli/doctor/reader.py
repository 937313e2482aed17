"""Reads objects of a cluster with the user's own rights. What the user may not read is an error of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from outrider.cli.errors import UserError
from outrider.cli.kube.api import PATIENCE, cluster
from outrider.cli.text import printable
from outrider.master.core.k8s.values.fields import entries, mapping
from outrider.master.core.k8s.values.names import GROUP_VERSION, PLURAL, Document

KINDS = {
    "CustomResourceDefinition": ("apiextensions.k8s.io/v1", "customresourcedefinitions"),
    "Deployment": ("apps/v1", "deployments"),
    "ElasticJob": (GROUP_VERSION, PLURAL),
    "MutatingWebhookConfiguration": ("admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations"),
    "NetworkPolicy": ("networking.k8s.io/v1", "networkpolicies"),
    "SelfSubjectAccessReview": ("authorization.k8s.io/v1", "selfsubjectaccessreviews"),
    "LocalSubjectAccessReview": ("authorization.k8s.io/v1", "localsubjectaccessreviews"),
}
"""Group, version and plural of the kinds outside the core group."""
CORE = {"Namespace": "namespaces", "Endpoints": "endpoints", "PersistentVolumeClaim": "persistentvolumeclaims"}

NO_JSON = "the API server's response is not JSON:"


class NoRight(Exception):
    """The user may not make a request. The text is the request, as `get deployments.apps in outrider-system`."""


class Reader:
    """One cluster, with the credentials that kubectl would use."""

    def __init__(self) -> None:
        self._core, self.namespace = cluster()
        from kubernetes import client

        self._objects = client.CustomObjectsApi(self._core.api_client)
        self._version = client.VersionApi(self._core.api_client)

    def version(self) -> str:
        """The version and the address of the API server."""
        found = self._plain("get the version", self._version.get_code)
        return f"{found.get('gitVersion')} at {self._core.api_client.configuration.host}"

    def is_served(self) -> bool:
        """Whether the API server knows ElasticJobs; any user may ask that."""
        group, version = GROUP_VERSION.split("/")
        call = self._objects.get_api_resources
        return self._asked(f"get the resources of {GROUP_VERSION}", call, group=group, version=version) is not None

    def get(self, kind: str, name: str, namespace: str = "") -> Document | None:
        """An object, or None if it does not exist. Raises NoRight and UserError."""
        what = self._what("get", kind, namespace)
        if kind in CORE:
            read = {"Namespace": self._core.read_namespace, "Endpoints": self._core.read_namespaced_endpoints,
                    "PersistentVolumeClaim": self._core.read_namespaced_persistent_volume_claim}[kind]  # fmt: skip
            return self._plain(what, read, name=name, **({"namespace": namespace} if namespace else {})) or None
        which = self._which(kind)
        if namespace:
            return mapping(self._asked(what, self._objects.get_namespaced_custom_object, **which, name=name,
                                       namespace=namespace)) or None  # fmt: skip
        return mapping(self._asked(what, self._objects.get_cluster_custom_object, **which, name=name)) or None

    def list(self, kind: str, namespace: str) -> list[Document]:
        """All objects of a kind in a namespace. Raises NoRight and UserError."""
        what = self._what("list", kind, namespace)
        read = self._objects.list_namespaced_custom_object
        listed = mapping(self._asked(what, read, **self._which(kind), namespace=namespace))
        return [mapping(each) for each in entries(listed.get("items"))]

    def may(self, verb: str, group: str, resource: str, namespace: str, user: str = "") -> bool:
        """Whether the user may do this, or another user in this namespace. Raises NoRight and UserError."""
        name, _, subresource = resource.partition("/")
        attributes = {
            "verb": verb,
            "group": group,
            "resource": name,
            "subresource": subresource,
            "namespace": namespace,
        }
        kind = "LocalSubjectAccessReview" if user else "SelfSubjectAccessReview"
        spec = {"resourceAttributes": attributes, **({"user": user} if user else {})}
        metadata = {"namespace": namespace} if user else {}
        body = {"apiVersion": KINDS[kind][0], "kind": kind, "metadata": metadata, "spec": spec}
        return bool(mapping(mapping(self._created(kind, body, namespace if user else "")).get("status")).get("allowed"))

    def tried(self, job: Document, namespace: str) -> None:
        """Have the API server and the webhook check an ElasticJob, and store nothing. Raises NoRight and UserError."""
        self._created("ElasticJob", job, namespace, dry_run="All")

    def _created(self, kind: str, body: Document, namespace: str, **options: Any) -> Any:
        what = self._what("create", kind, namespace)
        if namespace:
            create = self._objects.create_namespaced_custom_object
            return self._asked(what, create, **self._which(kind), body=body, namespace=namespace, **options)
        return self._asked(what, self._objects.create_cluster_custom_object, **self._which(kind), body=body, **options)

    @staticmethod
    def _which(kind: str) -> dict[str, str]:
        group_version, plural = KINDS[kind]
        group, version = group_version.split("/")
        return {"group": group, "version": version, "plural": plural}

    @staticmethod
    def _what(verb: str, kind: str, namespace: str) -> str:
        group, plural = KINDS.get(kind, ("", CORE.get(kind, "")))
        name = f"{plural}.{group.partition('/')[0]}" if group else plural
        return f"{verb} {name}" + (f" in the namespace {namespace}" if namespace else "")

    @classmethod
    def _plain(cls, what: str, call: Callable[..., Any], **options: Any) -> Document:
        """The JSON object of a response, of whatever shape; empty if there is none."""
        response = cls._asked(what, call, **options, _preload_content=False)
        try:
            return {} if response is None else mapping(json.loads(response.data))
        except ValueError:
            raise UserError(f"{NO_JSON} {what}") from None

    @staticmethod
    def _asked(what: str, call: Callable[..., Any], **options: Any) -> Any:
        from kubernetes.client import ApiException
        from urllib3.exceptions import HTTPError

        try:
            return call(**options, _request_timeout=PATIENCE)
        except ApiException as error:
            if error.status == 404 and not what.startswith("create"):
                return None
            if error.status in (401, 403):
                raise NoRight(what) from None
            raise UserError(f"the API server did not {what}: {_message(error)}") from None
        except ValueError:
            raise UserError(f"{NO_JSON} {what}") from None
        except HTTPError as error:
            raise UserError(f"the API server does not answer: {printable(error)[:300]}") from None


def _message(error: Any) -> str:
    try:
        return printable(json.loads(error.body)["message"])
    except (ValueError, KeyError, TypeError):
        return printable(f"{error.status} {error.reason}")
