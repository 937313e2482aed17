"""The webhook's CA and certificate: good for a year, renewed in time, the same in two replicas, trusted all along."""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509

from outrider.master.kubernetes.api.client import ApiError
from outrider.master.kubernetes.webhook import certificates
from outrider.master.kubernetes.webhook.certificates import Certificates, make, names_of, reason_to_renew
from tests.integration.kubernetes.cluster_double import Documents, patched

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
NAMES = names_of("outrider-system")
SECRET = "/api/v1/namespaces/outrider-system/secrets/outrider-webhook-tls"
MUTATING, VALIDATING = certificates.CONFIGURATIONS


def configuration(*webhooks: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "outrider", "resourceVersion": "1"},
        "webhooks": [{"name": name, "clientConfig": {"service": {"name": "outrider-webhook"}}} for name in webhooks],
    }


def cluster() -> Documents:
    return Documents(
        {MUTATING: configuration("pods.outrider.dev", "roles.outrider.dev"), VALIDATING: configuration("jobs")}
    )


def bundles(api: Documents) -> set[bytes]:
    return {
        b64decode(webhook["clientConfig"].get("caBundle", ""))
        for path in (MUTATING, VALIDATING)
        for webhook in api.documents[path]["webhooks"]
    }


def authorities(pem: bytes) -> int:
    return len(x509.load_pem_x509_certificates(pem))


# -- when they are renewed ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("after", "names", "reason"),
    [
        (timedelta(), NAMES, ""),
        (timedelta(days=334), NAMES, ""),
        (timedelta(days=336), NAMES, "they expire at 2027-03-01T12:00:00Z"),
        (timedelta(days=400), NAMES, "they expire at"),
        (timedelta(hours=-2), NAMES, "they are not valid yet"),
        (timedelta(), NAMES[:1], ""),
        (timedelta(), names_of("elsewhere"), "the certificate is not for outrider-webhook.elsewhere.svc"),
    ],
)
def test_they_are_renewed_30_days_before_the_end_and_for_other_names(
    after: timedelta, names: tuple[str, ...], reason: str
) -> None:
    found = reason_to_renew(make(NAMES, NOW), names, NOW + after)
    assert found.startswith(reason)
    assert bool(found) == bool(reason)


def test_what_does_not_belong_together_is_renewed() -> None:
    good, other = make(NAMES, NOW), make(NAMES, NOW)
    mixed = {
        "another key": Certificates(good.ca, good.certificate, other.key),
        "another CA": Certificates(other.ca, good.certificate, good.key),
        "the old CA in front": Certificates(other.ca + good.ca, good.certificate, good.key),
        "nothing": Certificates(b"", b"", b""),
        "half a certificate": Certificates(good.ca, good.certificate[:200], good.key),
        "no key": Certificates(good.ca, good.certificate, good.certificate),
    }
    assert [what for what, held in mixed.items() if not reason_to_renew(held, NAMES, NOW)] == []
    assert reason_to_renew(good, NAMES, NOW) == ""


def test_a_renewal_keeps_the_cas_that_have_not_ended() -> None:
    first = make(NAMES, NOW)
    second = make(NAMES, NOW + timedelta(days=340), trusted=first.ca)
    assert second.ca.endswith(first.ca)
    assert reason_to_renew(second, NAMES, NOW + timedelta(days=340)) == ""
    third = make(NAMES, NOW + timedelta(days=680), trusted=second.ca)
    assert authorities(second.ca) == authorities(third.ca) == 2
    assert first.ca not in third.ca


def test_a_ca_that_cannot_be_read_is_not_kept() -> None:
    assert authorities(make(NAMES, NOW, trusted=b"-----BEGIN CERTIFICATE-----\nhello").ca) == 1


def test_the_private_key_is_not_shown() -> None:
    assert "PRIVATE" not in repr(make(NAMES, NOW))


# -- documents ------------------------------------------------------------------------------------------------------
def test_a_secret_gives_back_what_was_put_into_it() -> None:
    held = make(NAMES, NOW)
    secret = certificates.secret_of(held, "outrider-system")
    assert secret["type"] == "kubernetes.io/tls"
    assert set(secret["data"]) == {"ca.crt", "tls.crt", "tls.key"}
    assert certificates.held_in(secret) == held


@pytest.mark.parametrize("data", [None, {}, {"tls.crt": None}, {"ca.crt": "no base64!", "tls.key": "a"}])
def test_a_secret_that_someone_spoilt_is_renewed(data: dict[str, str] | None) -> None:
    assert "cannot be used" in reason_to_renew(certificates.held_in({"data": data}), NAMES, NOW)


def test_each_webhook_that_does_not_trust_the_ca_gets_it() -> None:
    document = configuration("one.outrider.dev", "two.outrider.dev")
    document["webhooks"][0]["clientConfig"]["caBundle"] = b64encode(b"new").decode()
    patch = certificates.bundle_patch(document, b"new")
    assert [step["op"] for step in patch] == ["test", "add"]
    patched(document, patch)
    assert [webhook["clientConfig"]["caBundle"] for webhook in document["webhooks"]] == [b64encode(b"new").decode()] * 2
    assert certificates.bundle_patch(document, b"new") == []
    assert certificates.bundle_patch({}, b"new") == []


# -- with the API server --------------------------------------------------------------------------------------------
async def test_two_replicas_that_start_at_once_serve_the_same() -> None:
    api = cluster()
    one, two = await asyncio.gather(*(certificates.ensure(api, "outrider-system", NOW) for _ in range(2)))
    assert one == two == certificates.held_in(api.documents[SECRET])
    assert api.calls.count("create secrets") == 2


async def test_two_replicas_that_renew_at_once_serve_the_same() -> None:
    api = cluster()
    old = await certificates.ensure(api, "outrider-system", NOW)
    later = NOW + timedelta(days=350)
    one, two = await asyncio.gather(*(certificates.ensure(api, "outrider-system", later) for _ in range(2)))
    assert one == two != old
    assert authorities(one.ca) == 2
    assert reason_to_renew(one, NAMES, later) == ""


async def test_good_ones_are_left_alone() -> None:
    api = cluster()
    held = await certificates.ensure(api, "outrider-system", NOW)
    api.calls.clear()
    assert await certificates.ensure(api, "outrider-system", NOW) == held
    assert api.calls == ["get outrider-webhook-tls"]


async def test_a_configuration_that_is_not_there_is_left_alone() -> None:
    api = cluster()
    del api.documents[VALIDATING]
    await certificates.publish(api, b"new")
    assert api.documents[MUTATING]["webhooks"][1]["clientConfig"]["caBundle"] == b64encode(b"new").decode()
    assert VALIDATING not in api.documents


async def test_a_lost_secret_gets_the_certificate_back_that_is_served() -> None:
    api = cluster()
    held = await certificates.ensure(api, "outrider-system", NOW)
    del api.documents[SECRET]
    assert await certificates.ensure(api, "outrider-system", NOW, held) == held
    api.documents[SECRET]["data"] = {}
    assert (
        await certificates.ensure(api, "outrider-system", NOW, held)
        == held
        == certificates.held_in(api.documents[SECRET])
    )
    del api.documents[SECRET]
    later = await certificates.ensure(api, "outrider-system", NOW + timedelta(days=350), held)
    assert reason_to_renew(later, NAMES, NOW + timedelta(days=350)) == ""


class Enough(Exception):
    pass


async def test_a_certificate_is_trusted_before_it_is_served_and_served_once() -> None:
    api, served, now, pauses = cluster(), list[Certificates](), [NOW], list[float]()

    def serve(held: Certificates) -> None:
        assert bundles(api) == {held.ca}
        served.append(held)

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            now[0] += timedelta(days=350)
        if len(pauses) == 3:  # someone applied the manifests again, and took it away
            del api.documents[VALIDATING]["webhooks"][0]["clientConfig"]["caBundle"]
        if len(pauses) == 4:
            raise Enough

    with pytest.raises(Enough):
        await certificates.keep(api, "outrider-system", serve, lambda: now[0], pause)
    assert len(served) == 2
    assert served[1].ca.endswith(served[0].ca)
    assert bundles(api) == {served[1].ca}
    assert set(pauses) == {certificates.LOOK_EVERY}


async def test_an_api_server_that_is_away_is_waited_for() -> None:
    api, served, pauses = cluster(), list[Certificates](), list[float]()
    api.refusals = [ApiError(0, "", "away"), ApiError(403, "Forbidden", "not yet"), ApiError(409, "Conflict", "busy")]

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        if served:
            raise Enough

    with pytest.raises(Enough):
        await certificates.keep(api, "outrider-system", served.append, lambda: NOW, pause)
    assert pauses == [certificates.AGAIN, certificates.AGAIN, certificates.LOOK_EVERY]


async def test_who_only_reads_serves_what_has_been_trusted_for_a_moment() -> None:
    api, served, pauses = cluster(), list[Certificates](), list[float]()
    old = await certificates.ensure(api, "outrider-system", NOW)
    await certificates.publish(api, old.ca)

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        match len(pauses):
            case 1:
                assert served == [], "not every API server may have heard of it"
            case 2:
                assert served == [old]
                await certificates.ensure(api, "outrider-system", NOW + timedelta(days=350))
            case 3 | 4:
                assert served == [old], "nobody trusts the new one yet"
                if len(pauses) == 4:
                    await certificates.publish(api, certificates.held_in(api.documents[SECRET]).ca)
            case 6:
                assert len(served) == 2
                api.documents[SECRET]["data"] = {}
            case 8:
                assert len(served) == 2, "what a Secret has lost is served on"
                raise Enough

    with pytest.raises(Enough):
        await certificates.follow(api, "outrider-system", served.append, pause)
    assert pauses[:2] == [certificates.SETTLES, certificates.LOOK_EVERY]
