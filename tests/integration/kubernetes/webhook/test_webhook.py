"""A real HTTPS client against the real server, with certificates made as the master makes them."""

from __future__ import annotations

import asyncio
import io
import json
import ssl
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.master.core.k8s.values.names import Document
from outrider.master.kubernetes.webhook.certificates import Certificates, make, names_of
from outrider.master.kubernetes.webhook.http import BODY_BYTES, HttpsServer, Webhook, differences
from tests.integration.kubernetes.cluster_double import patched

NAMES = names_of("outrider-system")
POD: Document = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"generateName": "train-", "labels": {"outrider.dev/inject": "true"}},
    "spec": {"containers": [{"name": "trainer", "image": "mine"}]},
}
JOB: Document = {
    "apiVersion": "outrider.dev/v1alpha1",
    "kind": "ElasticJob",
    "metadata": {"name": "digits"},
    "spec": {"replicaSpecs": {"Worker": {"replicas": 2}}},
}


def review(document: Document, **request: Any) -> Document:
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": "", "version": "v1", "kind": document.get("kind")},
            "namespace": "training",
            "operation": "CREATE",
            "object": document,
            **request,
        },
    }


def with_a_sidecar(pod: Document, namespace: str, request: Document) -> tuple[Document, list[str]]:
    """Changes the pod that it was given, as a careless function may."""
    pod["metadata"].setdefault("annotations", {})["outrider.dev/injected"] = "1"
    pod["spec"]["shareProcessNamespace"] = True
    pod["spec"]["containers"].append({"name": "outrider-sidecar", "env": [{"name": "NAMESPACE", "value": namespace}]})
    return pod, [f"for {request['operation']}"]


def in_lower_case(job: Document, old: Document | None) -> Document:
    specs = job["spec"]["replicaSpecs"]
    job["spec"]["replicaSpecs"] = {role.lower(): spec for role, spec in specs.items()}
    return job


def fewer_than_three(job: Document, old: Document | None) -> list[str]:
    was = old["spec"]["replicaSpecs"]["Worker"]["replicas"] if old else "nothing"
    return [
        f"spec.replicaSpecs.{role}.replicas: {spec['replicas']} is more than 2, it was {was}"
        for role, spec in job["spec"]["replicaSpecs"].items()
        if spec["replicas"] > 2
    ]


def broken(*arguments: object) -> Any:
    raise ZeroDivisionError("a bug\nof ours")


class Asked:
    def __init__(self, server: HttpsServer, port: int) -> None:
        self.server, self.port = server, port

    async def post(
        self, path: str, body: object, trusted: Certificates, client_certificate: Path | None = None
    ) -> tuple[int, Any]:
        """By a connection of its own, as the API server would verify it."""
        context = ssl.create_default_context(cadata=trusted.ca.decode())
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        if client_certificate:
            context.load_cert_chain(client_certificate)
        data = io.BytesIO(body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":")).encode())
        async with (
            aiohttp.ClientSession() as client,
            client.post(
                f"https://127.0.0.1:{self.port}{path}", data=data, ssl=context, server_hostname=NAMES[0]
            ) as answer,
        ):
            return answer.status, await answer.json()

    async def decide(self, path: str, body: Document) -> Any:
        status, answer = await self.post(path, body, CERTIFICATES)
        assert status == 200
        assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
        assert answer["response"]["uid"] == body["request"]["uid"]
        return answer["response"]


CERTIFICATES = make(NAMES, datetime.now(UTC))


@asynccontextmanager
async def serving(
    mutate: Any = with_a_sidecar, normalise: Any = in_lower_case, validate: Any = fewer_than_three, **more: Any
) -> AsyncIterator[Asked]:
    server = HttpsServer(Webhook(mutate, normalise, validate, **more).application())
    server.certify(CERTIFICATES.certificate, CERTIFICATES.key)
    asked = Asked(server, await server.start("127.0.0.1", 0))
    try:
        yield asked
    finally:
        await server.stop()


def applied(document: Document, response: Document) -> Document:
    assert response["patchType"] == "JSONPatch"
    changed = deepcopy(document)
    patched(changed, json.loads(b64decode(response["patch"])))
    return changed


# -- pods -----------------------------------------------------------------------------------------------------------
async def test_a_pod_becomes_what_the_function_makes_of_it() -> None:
    async with serving() as asked:
        response = await asked.decide("/mutate-pods", review(POD))
    assert response["allowed"] is True
    assert response["warnings"] == ["for CREATE"]
    assert applied(POD, response) == with_a_sidecar(deepcopy(POD), "training", {"operation": "CREATE"})[0]


async def test_a_pod_that_nothing_is_done_to_is_let_through() -> None:
    async with serving(mutate=lambda *_: (None, [])) as asked:
        response = await asked.decide("/mutate-pods", review(POD))
    assert response == {"uid": response["uid"], "allowed": True}


async def test_a_pod_may_wait_for_an_answer_of_the_api_server() -> None:
    async def mutate(pod: Document, namespace: str, request: Document) -> tuple[Document, list[str]]:
        await asyncio.sleep(0)
        return with_a_sidecar(pod, namespace, request)

    async with serving(mutate) as asked:
        response = await asked.decide("/mutate-pods", review(POD, namespace=None))
    assert applied(POD, response)["spec"]["containers"][1]["env"][0]["value"] == "default"


async def never(*arguments: object) -> Any:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("mutate", "why"),
    [
        (broken, "ZeroDivisionError: a bug of ours"),
        (never, "the decision timed out"),
        (lambda *_: None, "TypeError"),
        (lambda *_: ({"spec": object()}, []), "TypeError"),
    ],
)
async def test_no_pod_is_held_up_by_a_fault_of_ours(mutate: Any, why: str, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(mutate, seconds=0.05) as asked:
        response = await asked.decide("/mutate-pods", review(POD))
    assert response["allowed"] is True
    assert "patch" not in response
    (warning,) = response["warnings"]
    assert warning.startswith("outrider: the pod is not changed, because the webhook failed: ")
    assert why in warning
    assert "the pod is not changed" in caplog.text


async def test_a_pod_in_no_known_shape_is_let_through() -> None:
    async with serving() as asked:
        for spoilt in ({"metadata": [], "spec": 3}, {"metadata": None}, {}):
            response = await asked.decide("/mutate-pods", review({"kind": "Pod", **spoilt}))
            assert (response["allowed"], "patch" in response) == (True, False)


async def test_warnings_fit_into_headers() -> None:
    async with serving(lambda pod, *_: (None, ["one\r\nline", "x" * 1000, *["y" * 200] * 30, ""])) as asked:
        warnings = (await asked.decide("/mutate-pods", review(POD)))["warnings"]
    assert warnings[0] == "one  line"
    assert max(map(len, warnings)) == 256
    assert sum(map(len, warnings)) <= 4000


# -- jobs -----------------------------------------------------------------------------------------------------------
async def test_roles_are_stored_in_lower_case() -> None:
    async with serving() as asked:
        response = await asked.decide("/mutate-elasticjobs", review(JOB))
    assert applied(JOB, response)["spec"]["replicaSpecs"] == {"worker": {"replicas": 2}}


async def test_a_wrong_job_is_refused_with_every_sentence() -> None:
    wrong = {**JOB, "spec": {"replicaSpecs": {"Worker": {"replicas": 3}, "ps": {"replicas": 9}}}}
    async with serving() as asked:
        assert (await asked.decide("/validate-elasticjobs", review(JOB)))["allowed"] is True
        response = await asked.decide("/validate-elasticjobs", review(wrong, operation="UPDATE", oldObject=JOB))
    assert response["allowed"] is False
    assert response["status"]["code"] == 422
    assert response["status"]["message"] == (
        "spec.replicaSpecs.Worker.replicas: 3 is more than 2, it was 2; "
        "spec.replicaSpecs.ps.replicas: 9 is more than 2, it was 2"
    )


@pytest.mark.parametrize(("operation", "is_allowed"), [("CREATE", False), ("UPDATE", True)])
async def test_a_job_that_is_far_too_large_is_refused_unread_and_may_be_edited(
    operation: str, is_allowed: bool
) -> None:
    def never(*_given: Any) -> Any:
        raise AssertionError("it was read")

    large = {"kind": "ElasticJob", "spec": {"x": [[]] * 200_000}}
    asked_about = review({"kind": "ElasticJob"}, operation=operation)
    del asked_about["request"]["object"]
    asked_about["request"]["object"] = large
    async with serving(never, never, never) as asked:
        answer = await asked.decide("/validate-elasticjobs", asked_about)
        assert answer["allowed"] is is_allowed
        said = [*answer.get("warnings", ()), answer.get("status", {}).get("message", "")]
        assert any("must have at most 10000 values" in each for each in said)
        pod = await asked.decide("/mutate-pods", asked_about)
        assert pod["allowed"]


async def test_a_pod_that_is_too_large_is_made_as_it_is() -> None:
    pod = {"kind": "Pod", "metadata": {}, "spec": {"containers": [{"args": ["kill " * 60_000]}]}}
    async with serving(with_a_sidecar, in_lower_case, lambda _job, _old: []) as asked:
        answer = await asked.decide("/mutate-pods", review(pod))
    assert answer["allowed"]
    assert "patch" not in answer
    assert "spec.containers[0].args[0]: Too long: with this field the document exceeds 256 KiB" in answer["warnings"][0]


async def test_a_wrong_job_may_go() -> None:
    going = {
        **JOB,
        "metadata": {"name": "digits", "deletionTimestamp": "2026-03-01T12:00:00Z"},
        "spec": {"replicaSpecs": {"Worker": {"replicas": 3}}},
    }
    async with serving() as asked:
        assert (await asked.decide("/validate-elasticjobs", review(going, oldObject=JOB)))["allowed"] is True


async def test_a_job_with_which_nothing_is_wrong_can_come_with_a_warning() -> None:
    async with serving(remark=lambda job: [f"nobody watches {job['metadata']['namespace']}"]) as asked:
        job = JOB | {"metadata": {"name": "one", "namespace": "team-c"}}
        answer = await asked.decide("/validate-elasticjobs", review(job))
    assert (answer["allowed"], answer["warnings"]) == (True, ["outrider: nobody watches team-c"])


@pytest.mark.parametrize("path", ["/mutate-elasticjobs", "/validate-elasticjobs"])
async def test_no_job_is_held_up_by_a_fault_of_ours(path: str) -> None:
    async with serving(normalise=broken, validate=broken) as asked:
        response = await asked.decide(path, review(JOB))
    assert response["allowed"] is True
    assert "because the webhook failed: ZeroDivisionError: a bug of ours" in response["warnings"][0]


# -- what is no request ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("path", "body", "sentence"),
    [
        ("/mutate-pods", b"{", "the body must be an AdmissionReview in JSON: "),
        ("/mutate-pods", b"", "the body must be an AdmissionReview in JSON: "),
        ("/mutate-pods", b"\xff\xfe{", "the body must be an AdmissionReview in JSON: "),
        ("/mutate-pods", b"[" * 200_000, "the body must be an AdmissionReview in JSON: "),
        ("/mutate-pods", [], "but is not an object"),
        ("/mutate-pods", POD, "must be an AdmissionReview of admission.k8s.io/v1, but is 'v1' 'Pod'"),
        ("/mutate-pods", review(POD) | {"apiVersion": "admission.k8s.io/v1beta1"}, "but is 'admission.k8s.io/v1beta1'"),
        ("/mutate-pods", review(POD) | {"request": None}, "request.uid: Required value"),
        ("/mutate-pods", review(POD, uid=""), "request.uid: Required value"),
        ("/mutate-pods", review(POD, uid=7), "request.uid: Required value"),
        ("/mutate-elasticjobs", b"null", "but is not an object"),
    ],
)
async def test_what_is_no_question_gets_a_sentence(path: str, body: object, sentence: str) -> None:
    async with serving() as asked:
        status, answer = await asked.post(path, body, CERTIFICATES)
    assert status == 400
    assert sentence in answer["error"]


@pytest.mark.parametrize(
    ("path", "body", "sentence"),
    [
        ("/mutate-pods", review(POD, object=None), "request.object is not an object; only CREATE and UPDATE"),
        ("/mutate-pods", review(POD, object=[POD]), "request.object is not an object; only CREATE and UPDATE"),
        ("/mutate-pods", review(JOB), "request.kind.kind is 'ElasticJob', but /mutate-pods handles only Pod"),
        ("/mutate-pods", review(POD, kind="Pod"), "request.kind.kind is None"),
        ("/validate-elasticjobs", review(POD), "'Pod', but /validate-elasticjobs handles only ElasticJob"),
        ("/mutate-elasticjobs", review(JOB, object=None, operation="DELETE"), "only CREATE and UPDATE"),
    ],
)
async def test_what_is_none_of_our_business_is_let_through_with_a_sentence(
    path: str, body: Document, sentence: str
) -> None:
    async with serving() as asked:
        response = await asked.decide(path, body)
    assert response["allowed"] is True
    assert "patch" not in response
    (warning,) = response["warnings"]
    assert warning.startswith("outrider: the object is not changed: request.")
    assert sentence in warning


async def test_other_paths_and_endless_bodies_get_a_sentence_too() -> None:
    async with serving() as asked:
        assert (await asked.post("/mutate", review(POD), CERTIFICATES))[0] == 404
        status, answer = await asked.post("/mutate-pods", b" " * (BODY_BYTES + 1), CERTIFICATES)
    assert status == 413
    assert answer["error"].startswith("POST /mutate-pods: ")


# -- TLS ------------------------------------------------------------------------------------------------------------
async def test_a_client_that_trusts_another_ca_is_not_answered() -> None:
    async with serving() as asked:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await asked.post("/mutate-pods", review(POD), make(NAMES, datetime.now(UTC)))


async def test_a_renewed_certificate_is_met_by_the_next_connection() -> None:
    renewed = make(NAMES, datetime.now(UTC), trusted=CERTIFICATES.ca)
    async with serving() as asked:
        assert (await asked.post("/mutate-pods", review(POD), renewed))[0] == 200  # trusted before it is served
        asked.server.certify(renewed.certificate, renewed.key)
        assert (await asked.post("/mutate-pods", review(POD), renewed))[0] == 200
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await asked.post("/mutate-pods", review(POD), CERTIFICATES)


async def test_a_certificate_that_cannot_be_loaded_leaves_the_one_that_is_served() -> None:
    async with serving() as asked:
        with pytest.raises(ssl.SSLError):
            asked.server.certify(b"", b"")
        assert (await asked.post("/mutate-pods", review(POD), CERTIFICATES))[0] == 200


# -- patches --------------------------------------------------------------------------------------------------------
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.text("a~/1", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("a~/1", max_size=3), inner, max_size=3),
    max_leaves=12,
)
objects = st.dictionaries(st.text("ab~/1", max_size=3), json_values, max_size=4)


@given(objects, objects)
def test_a_patch_makes_the_new_one_of_the_old(old: Document, new: Document) -> None:
    made = deepcopy(old)
    patched(made, list(differences(old, new)))
    assert json.dumps(made, sort_keys=True) == json.dumps(new, sort_keys=True)
    assert list(differences(new, deepcopy(new))) == []
