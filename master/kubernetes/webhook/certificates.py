"""Creates, renews and publishes the webhook's HTTPS identity: a CA and a serving certificate.

They are kept in a Secret, and all replicas serve those of the Secret; the first replica that creates or renews them
does so for all. A CA signs once and its key is thrown away, so each renewal creates another CA. The Secret's `ca.crt`
then holds the old one too, and each replica writes `ca.crt` into the webhook configurations before it serves the
Secret's certificate. Thus the served certificate is trusted at every moment, whichever replica is ahead.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn, Protocol

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from outrider.master.core.k8s.values.names import Document
from outrider.master.kubernetes.api.client import ApiError
from outrider.master.kubernetes.api.outage import Outage

SECRET = "outrider-webhook-tls"
SERVICE = "outrider-webhook"
CONFIGURATIONS = tuple(
    f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations/outrider" for kind in ("mutating", "validating")
)
VALID = timedelta(days=365)
RENEW_BEFORE = timedelta(days=30)
CLOCKS_DIFFER = timedelta(hours=1)
"""A certificate is valid from this long before its creation, as the API server's clock may differ from ours."""
LOOK_EVERY = 10.0
AGAIN = 5.0
"""Seconds until a failed request is retried."""
SETTLES = 1.0
"""Seconds within which every API server has received a changed caBundle."""
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"

log = logging.getLogger("certificates")


class Reads(Protocol):
    """Read access to the API server, with errors as `ApiError`."""

    async def get(self, path: str) -> Document: ...


class Calls(Reads, Protocol):
    """Read and write access to the API server, with errors as `ApiError`."""

    async def create(self, path: str, document: Mapping[str, Any]) -> Document: ...
    async def patch(self, path: str, patch: Any, content_type: str = ...) -> Document: ...


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM documents. `ca` holds all trusted CAs, the newest first; `certificate` is signed by the newest."""

    ca: bytes
    certificate: bytes
    key: bytes = field(repr=False)


def names_of(namespace: str) -> tuple[str, ...]:
    """The webhook's DNS names, as used by the API server and by users inside the cluster."""
    return f"{SERVICE}.{namespace}.svc", f"{SERVICE}.{namespace}.svc.cluster.local"


# -- making ---------------------------------------------------------------------------------------------------------
def make(names: tuple[str, ...], now: datetime, trusted: bytes = b"") -> Certificates:
    """A new CA and a certificate signed by it, valid for a year. `trusted`: CAs (PEM) that stay trusted until they
    expire."""
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"outrider webhook CA {serial:x}"[:64])])
    authority = x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key())
    ca = (
        _unsigned(issuer, issuer, ca_key.public_key(), now)
        .serial_number(serial)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
        .add_extension(authority, critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    certificate = (
        _unsigned(subject, issuer, key.public_key(), now)
        .serial_number(x509.random_serial_number())
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(authority), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Certificates(ca.public_bytes(pem) + _living(trusted, now), certificate.public_bytes(pem), private)


def _unsigned(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .not_valid_before(now - CLOCKS_DIFFER)
        .not_valid_after(now + VALID)
    )


def _usage(*, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _living(trusted: bytes, now: datetime) -> bytes:
    """Those of these CAs that have not expired; empty if they cannot be parsed."""
    try:
        found = x509.load_pem_x509_certificates(trusted) if trusted.strip() else []
    except ValueError:
        return b""
    return b"".join(ca.public_bytes(serialization.Encoding.PEM) for ca in found if ca.not_valid_after_utc > now)


# -- judging --------------------------------------------------------------------------------------------------------
def reason_to_renew(held: Certificates, names: tuple[str, ...], now: datetime) -> str:
    """Why these must not be served (any longer); empty if they are good."""
    try:
        ca = x509.load_pem_x509_certificates(held.ca)[0]
        certificate = x509.load_pem_x509_certificate(held.certificate)
        key = serialization.load_pem_private_key(held.key, None)
        certificate.verify_directly_issued_by(ca)
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except Exception as error:  # a broken document may make the library raise anything
        return f"they cannot be used: {str(error) or type(error).__name__}"
    if key.public_key() != certificate.public_key():
        return "the key is not the certificate's"
    missing = sorted(set(names) - set(found.get_values_for_type(x509.DNSName)))
    if missing:
        return f"the certificate is not for {', '.join(missing)}"
    end = min(ca.not_valid_after_utc, certificate.not_valid_after_utc)
    if end - now < RENEW_BEFORE:
        return f"they expire at {end:%Y-%m-%dT%H:%M:%SZ}"
    if max(ca.not_valid_before_utc, certificate.not_valid_before_utc) > now:
        return "they are not valid yet"
    return ""


# -- documents ------------------------------------------------------------------------------------------------------
def secret_of(held: Certificates, namespace: str) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET, "namespace": namespace, "labels": {"app.kubernetes.io/name": "outrider"}},
        "type": "kubernetes.io/tls",
        "data": _data(held),
    }


def secret_patch(held: Certificates, resource_version: str) -> Document:
    """A merge patch, which fails with 409 if the Secret has changed since it was read."""
    return {"metadata": {"resourceVersion": resource_version}, "data": _data(held)}


def held_in(secret: Document) -> Certificates:
    """The Secret's certificates; missing or undecodable values are empty, which `reason_to_renew` reports."""
    data = secret.get("data") or {}

    def value(name: str) -> bytes:
        try:
            return b64decode(data.get(name) or "")
        except ValueError:
            return b""

    return Certificates(value("ca.crt"), value("tls.crt"), value("tls.key"))


def _data(held: Certificates) -> dict[str, str]:
    values = {"ca.crt": held.ca, "tls.crt": held.certificate, "tls.key": held.key}
    return {name: b64encode(value).decode() for name, value in values.items()}


def bundle_patch(configuration: Document, ca: bytes) -> list[Document]:
    """A JSON patch that makes each webhook of the configuration trust `ca`; empty if all do."""
    bundle = b64encode(ca).decode()
    patch: list[Document] = []
    for index, webhook in enumerate(configuration.get("webhooks") or ()):
        if (webhook.get("clientConfig") or {}).get("caBundle") != bundle:
            patch.append({"op": "test", "path": f"/webhooks/{index}/name", "value": webhook["name"]})
            patch.append({"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": bundle})
    return patch


# -- with the API server --------------------------------------------------------------------------------------------
async def ensure(api: Calls, namespace: str, now: datetime, served: Certificates | None = None) -> Certificates:
    """The Secret's certificates, created or renewed if needed.

    `served`: certificates that are trusted already; if they are still good, they are written back into a Secret that is
    missing or unusable. Raises ApiError.
    """
    folder = f"/api/v1/namespaces/{namespace}/secrets"
    names = names_of(namespace)
    kept = None if served is None or reason_to_renew(served, names, now) else served
    for _ in range(3):
        try:
            try:
                secret = await api.get(f"{folder}/{SECRET}")
            except ApiError as error:
                if error.status != 404:
                    raise
                what = "creating one" if kept is None else "writing the served one back"
                log.info("the Secret %s with the webhook's certificate is missing: %s", SECRET, what)
                return held_in(await api.create(folder, secret_of(kept or make(names, now), namespace)))
            held = held_in(secret)
            reason = reason_to_renew(held, names, now)
            if not reason:
                return held
            log.info("renewing the webhook's certificates: %s", reason)
            renewed = kept or make(names, now, trusted=held.ca)
            version = secret["metadata"]["resourceVersion"]
            return held_in(await api.patch(f"{folder}/{SECRET}", secret_patch(renewed, version), MERGE_PATCH))
        except ApiError as error:
            if error.status != 409:
                raise
            log.info("another replica has written the webhook's certificate first: using that one")
    raise ApiError(409, "Conflict", f"Secret {SECRET}: another client keeps changing it")


async def publish(api: Calls, ca: bytes) -> None:
    """Writes the CAs into the existing webhook configurations."""
    for path in CONFIGURATIONS:
        try:
            patch = bundle_patch(await api.get(path), ca)
            if patch:
                await api.patch(path, patch, JSON_PATCH)
        except ApiError as error:
            if error.status != 404:
                raise
            log.warning("%s does not exist: the API server will not send such requests to the webhook", path)


async def keep(
    api: Calls,
    namespace: str,
    serve: Callable[[Certificates], None],
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    pause: Callable[[float], Any] = asyncio.sleep,
) -> NoReturn:
    """Serves the Secret's certificates, at once and after each change, and renews them in time, until cancelled.

    A caBundle that was removed (by a second `kubectl apply`, for example) is restored at the next look.
    """
    served: Certificates | None = None
    outage = Outage(log)
    while True:
        try:
            held = await ensure(api, namespace, clock(), served)
            await publish(api, held.ca)
        except (ApiError, TimeoutError) as error:
            outage.failed(f"checking the webhook's certificates failed: {error or 'no answer in time'}")
            await pause(AGAIN)
            continue
        outage.over("the webhook's certificates can be checked again")
        if held != served:
            serve(held)
            served = held
        await pause(LOOK_EVERY)


# -- certificates that a master keeps -------------------------------------------------------------------------------
async def follow(
    api: Reads,
    namespace: str,
    serve: Callable[[Certificates], None],
    pause: Callable[[float], Any] = asyncio.sleep,
) -> NoReturn:
    """Serves the Secret's certificate once the webhook configurations have trusted it for a moment, until cancelled.

    By then every API server has the new caBundle; meanwhile the old certificate is served, which stays trusted. This
    only reads.
    """
    served: Certificates | None = None
    trusted: Certificates | None = None
    while True:
        try:
            held = held_in(await api.get(f"/api/v1/namespaces/{namespace}/secrets/{SECRET}"))
            if held not in (served, trusted):
                trusted = held if await _is_published(api, held.ca) else None
            elif held == trusted != served:
                serve(held)
                served = held
        except (ApiError, TimeoutError, ssl.SSLError) as error:
            log.warning("the webhook's certificate cannot be loaded (yet): %s", error or "no answer in time")
            await pause(AGAIN)
            continue
        await pause(LOOK_EVERY if held == served else SETTLES)


async def _is_published(api: Reads, ca: bytes) -> bool:
    """Whether all existing webhook configurations trust `ca`."""
    for path in CONFIGURATIONS:
        try:
            if bundle_patch(await api.get(path), ca):
                return False
        except ApiError as error:
            if error.status != 404:
                raise
    return True
