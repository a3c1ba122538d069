"""The certificate of a webhook is judged as Go judges it, and the reason of a refusal is in the answer."""

from __future__ import annotations

import base64
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID
from tests.admission.webhook_server import allowed
from tests.admission.webhooks.configurations import NAME, VALIDATING, configure, hook
from tests.server.in_process import CONFIG_MAPS, InProcess, config_map

from pinnace.auth.certificates.authority import KeyPair, new_ca
from pinnace.process.certificates import alternative_names, common_name
from pinnace.process.tls import UnusableBundle, readable_certificates

FAILED = f'Internal error occurred: failed calling webhook "{NAME}": '
DAY = timedelta(days=1)
CA = new_ca()
ONE_CALLED_LIKE_IT = new_ca()


def certificate(subject: str, *names: str, first: int = -1, last: int = 1, usage: str = "SERVER_AUTH") -> KeyPair:
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder(CA.certificate.subject)
        .subject_name(common_name(subject))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + first * DAY)
        .not_valid_after(now + last * DAY)
        .add_extension(x509.ExtendedKeyUsage([getattr(ExtendedKeyUsageOID, usage)]), critical=False)
    )
    if names:
        builder = builder.add_extension(alternative_names(names), critical=False)
    return KeyPair(builder.sign(CA.key, hashes.SHA256()), key)


@asynccontextmanager
async def serving(directory: Path, pair: KeyPair) -> AsyncIterator[int]:
    """Serve a webhook that allows all, with this certificate; yield its port."""
    (directory / "pair.pem").write_bytes(pair.certificate_pem + pair.key_pem)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(directory / "pair.pem")

    async def handle(request: web.BaseRequest) -> web.Response:
        return web.json_response(allowed((await request.json())["request"]))

    runner = web.ServerRunner(web.Server(handle), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def message(api: InProcess, directory: Path, pair: KeyPair, *, host: str = "127.0.0.1", bundle: bytes) -> str:
    """Return the error of a create that such a webhook must allow; empty if there is none."""
    async with serving(directory, pair) as port:
        url = f"https://{host}:{port}/"
        await configure(api, VALIDATING, hook({"url": url, "caBundle": base64.b64encode(bundle).decode()}))
        reply = await api.post(CONFIG_MAPS, config_map())
    if reply.status == 201:
        return ""
    return reply.message.removeprefix(f'{FAILED}failed to call webhook: Post "{url}?timeout=10s": ')


EXPIRED = "certificate has expired or is not yet valid"
REFUSED: dict[str, tuple[str, KeyPair, str]] = {
    "expired": ("127.0.0.1", certificate("a", "127.0.0.1", first=-3, last=-2), EXPIRED),
    "not yet valid": ("127.0.0.1", certificate("a", "127.0.0.1", first=2, last=3), EXPIRED),
    "another address": (
        "127.0.0.1",
        certificate("a", "192.0.2.1", "192.0.2.2", "a.example.com"),
        "IP address mismatch, certificate is not valid for '127.0.0.1'.",
    ),
    "other names": (
        "localhost",
        certificate("a", "a.example.com", "*.b.example.com", "127.0.0.1"),
        "Hostname mismatch, certificate is not valid for 'localhost'.",
    ),
    "a common name alone": (
        "localhost",
        certificate("localhost"),
        "Hostname mismatch, certificate is not valid for 'localhost'.",
    ),
    "that of a client": (
        "127.0.0.1",
        certificate("a", "127.0.0.1", usage="CLIENT_AUTH"),
        "certificate specifies an incompatible key usage",
    ),
}


@pytest.mark.parametrize(("host", "pair", "reason"), REFUSED.values(), ids=REFUSED)
async def test_the_reason_why_a_certificate_is_refused_is_in_the_answer(
    api: InProcess, tmp_path: Path, host: str, pair: KeyPair, reason: str
) -> None:
    result = await message(api, tmp_path, pair, host=host, bundle=CA.certificate_pem)
    assert result == f"tls: failed to verify certificate: x509: {reason}"


async def test_the_ca_of_a_bundle_is_another_of_the_same_name(api: InProcess, tmp_path: Path) -> None:
    result = await message(api, tmp_path, certificate("a", "127.0.0.1"), bundle=ONE_CALLED_LIKE_IT.certificate_pem)
    assert result == "tls: failed to verify certificate: x509: certificate signed by unknown authority"


JUNK = b"-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n"
NO_BASE64 = b"-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"
ROOT = CA.certificate_pem
READABLE: dict[str, bytes] = {
    "text around it": b"hello\n" + ROOT + b"between\n" + new_ca().certificate_pem + b"bye",
    "junk before it": JUNK + ROOT,
    "junk after it": ROOT + JUNK,
    "no base64 before it": NO_BASE64 + ROOT,
    "no base64 after it": ROOT + NO_BASE64,
    "the key before it": CA.key_pem + ROOT,
    "twice": ROOT + ROOT,
    "lines that end as on Windows": ROOT.replace(b"\n", b"\r\n"),
    "no end of its last line": ROOT.strip(),
}
UNREADABLE: dict[str, tuple[bytes, str]] = {
    "text": (b"hello", "unable to parse bytes as PEM block"),
    "DER": (ssl.PEM_cert_to_DER_cert(ROOT.decode()), "unable to parse bytes as PEM block"),
    "indented lines": (ROOT.replace(b"\n", b"\n  "), "unable to parse bytes as PEM block"),
    "no last line": (ROOT[:-20], "unable to parse bytes as PEM block"),
    "a key": (CA.key_pem, "no valid certificate authority data seen"),
    "another type": (ROOT.replace(b"CERTIFICATE", b"X509 CERTIFICATE"), "no valid certificate authority data seen"),
    "headers": (ROOT.replace(b"-----\n", b"-----\nX-A: b\n\n", 1), "no valid certificate authority data seen"),
    "junk": (JUNK, "failed to parse certificate: x509: malformed certificate"),
}


@pytest.mark.parametrize("bundle", READABLE.values(), ids=READABLE)
def test_a_certificate_is_found_in_a_bundle_as_go_finds_it(bundle: bytes) -> None:
    assert ROOT.decode() in readable_certificates(bundle)


@pytest.mark.parametrize(("bundle", "reason"), UNREADABLE.values(), ids=UNREADABLE)
def test_a_bundle_without_a_certificate_is_refused_in_the_words_of_kubernetes(bundle: bytes, reason: str) -> None:
    with pytest.raises(UnusableBundle, match=f"^{re.escape(reason)}$"):
        readable_certificates(bundle)


async def test_a_bundle_that_cannot_be_used_fails_before_the_call(api: InProcess, tmp_path: Path) -> None:
    result = await message(api, tmp_path, certificate("a", "127.0.0.1"), bundle=b"hello")
    why = "could not get REST client: unable to load root certificates: unable to parse bytes as PEM block"
    assert result == f"{FAILED}{why}"
