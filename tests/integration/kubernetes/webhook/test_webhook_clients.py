"""Who may ask the webhook, where the API server has a certificate: from the setting to real handshakes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from outrider.master.kubernetes import service
from outrider.master.kubernetes import settings as settings_of
from outrider.master.kubernetes.webhook import admission
from outrider.master.service.exit_codes import WRONG_SETTING
from outrider.runtime.settings import Environment
from tests.integration.kubernetes.document_server import having
from tests.integration.kubernetes.webhook.test_webhook import CERTIFICATES, JOB, NAMES, Asked, review
from tests.integration.kubernetes.webhook.test_webhook_service import free_port

SETTING = "OUTRIDER_WEBHOOK_CLIENT_CA"
TOLD = {"POD_NAMESPACE": "outrider-system", "POD_NAME": "w", "OUTRIDER_IMAGE": "i", "OUTRIDER_SERVES": "webhook"}
NONE = "must be a file of CA certificates in PEM: "
PEM = serialization.Encoding.PEM


class Authority:
    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        ca = self._unsigned(name, self._key).add_extension(x509.BasicConstraints(True, None), critical=True)
        self.file = folder / f"{name}.crt"
        self.file.write_bytes(b"# \xc3\xb6 in a comment\n" + ca.sign(self._key, hashes.SHA256()).public_bytes(PEM))

    def client(self, name: str, usage: x509.ObjectIdentifier = ExtendedKeyUsageOID.CLIENT_AUTH) -> Path:
        """A file with a certificate and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._unsigned(name, key).add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        file = self._folder / f"{name}.pem"
        private = key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        file.write_bytes(certificate.sign(self._key, hashes.SHA256()).public_bytes(PEM) + private)
        return file

    def _unsigned(self, name: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .issuer_name(self._name)
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
        )


@asynccontextmanager
async def serving(**told: str) -> AsyncIterator[Asked]:
    port = free_port()
    settings = settings_of.read(Environment({**TOLD, "OUTRIDER_WEBHOOK_PORT": str(port), **told}))

    async def certify(serve: admission.Serve) -> NoReturn:
        serve(CERTIFICATES)
        while True:
            await asyncio.Event().wait()

    def policy() -> Any:
        raise AssertionError("no pod is asked about")

    async with having({}) as (_, api), admission.serving(api, settings, policy, certify) as server:
        yield Asked(server, port)


async def test_who_has_a_certificate_of_the_ca_is_answered(tmp_path: Path) -> None:
    known = Authority(tmp_path, "known")
    async with serving(**{SETTING: str(known.file)}) as asked:
        client = known.client("api-server")
        status, answer = await asked.post("/mutate-elasticjobs", review(JOB), CERTIFICATES, client)
    assert (status, answer["response"]["allowed"]) == (200, True)


async def said_to(client: ssl.SSLContext, port: int) -> bytes:
    """To a whole question. In TLS 1.3 a client is done with its part of the handshake before it is refused."""
    with contextlib.suppress(OSError):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client, server_hostname=NAMES[0])
        body = json.dumps(review(JOB)).encode()
        head = f"POST /mutate-elasticjobs HTTP/1.1\r\nHost: us\r\nConnection: close\r\nContent-Length: {len(body)}"
        writer.write(head.encode() + b"\r\n\r\n" + body)
        with contextlib.closing(writer):
            return await reader.read()
    return b""


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_no_other_client_is_answered(version: ssl.TLSVersion, tmp_path: Path) -> None:
    known, other = Authority(tmp_path, "known"), Authority(tmp_path, "other")
    shown = (
        known.client("api-server"),
        None,
        other.client("stranger"),
        known.client("server", ExtendedKeyUsageOID.SERVER_AUTH),
    )
    said = []
    async with serving(**{SETTING: str(known.file)}) as asked:
        for certificate in shown:
            trusting = ssl.create_default_context(cadata=CERTIFICATES.ca.decode())
            trusting.minimum_version = trusting.maximum_version = version
            if certificate:
                trusting.load_cert_chain(certificate)
            said.append((await said_to(trusting, asked.port))[:12])
    assert said == [b"HTTP/1.1 200", b"", b"", b""]


async def test_without_the_setting_no_certificate_is_needed() -> None:
    async with serving() as asked:
        assert (await asked.post("/mutate-elasticjobs", review(JOB), CERTIFICATES))[0] == 200


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "must be a file that can be read: No such file"),
        (b"", NONE),
        (b"no certificate", NONE),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", NONE),
        (CERTIFICATES.key, NONE),
        (b"\xff\xfe", "must be a file that can be read: it is not text"),
    ],
    ids=["missing", "empty", "text", "broken", "a private key", "bytes"],  # a key is another one in each process
)
def test_a_file_without_certificates_stops_the_start(
    content: bytes | None, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "clients.crt"
    if content is not None:
        file.write_bytes(content)
    assert service.main(Environment({**TOLD, SETTING: str(file)})) == WRONG_SETTING
    assert f"{SETTING}={str(file)!r}: {why}" in capsys.readouterr().err
