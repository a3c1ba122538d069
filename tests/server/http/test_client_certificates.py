"""The HTTP server through sockets: client certificates."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from tests.server.raw_http import GET, client_context, event_loop_policy, files, pytestmark, server_context, serving

from pinnace.auth.certificates.authority import CertificateFiles, ensure_certificates
from pinnace.server.http.server import Request, Response

__all__ = ["event_loop_policy", "files", "pytestmark"]


async def test_a_client_certificate_is_seen_once_per_connection_and_not_required(files: CertificateFiles) -> None:
    seen: list[bytes | None] = []

    def handler(request: Request) -> Response:
        seen.append(request.peer.certificate)
        return Response(200)

    for certified in (True, False):
        client_tls = client_context(files, certified=certified)
        async with serving(handler, server_tls=server_context(files), client_tls=client_tls) as served:
            client = await served.connect()
            assert client.writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
            for _ in range(2):
                await client.send(GET)
                await client.reply()
    expected = ssl.PEM_cert_to_DER_cert(Path(files.admin.certificate).read_text())
    assert seen == [expected, expected, None, None]
    assert seen[0] is seen[1]


@pytest.mark.parametrize("whose", ["another authority's", "a server's", "no authority's", "a forger's"])
async def test_a_certificate_of_no_trusted_authority_is_not_shown(
    files: CertificateFiles, tmp_path: Path, whose: str
) -> None:
    client_tls = client_context(files)
    if whose == "a server's":
        client_tls.load_cert_chain(files.server.certificate, files.server.key)
    elif whose == "another authority's":
        other = ensure_certificates(tmp_path).admin
        client_tls.load_cert_chain(other.certificate, other.key)
    else:
        der = bytearray(ssl.PEM_cert_to_DER_cert(files.admin.certificate.read_text()))
        if whose == "no authority's":
            der[der.index(b"\x02\x01\x02") + 2] = 5  # There is no version 5: not everybody can read it.
        else:
            der[-1] ^= 1
        changed = tmp_path / "changed.crt"
        changed.write_text(ssl.DER_cert_to_PEM_cert(bytes(der)))
        client_tls.load_cert_chain(changed, files.admin.key)
    seen: list[tuple[bytes | None, list[bytes]]] = []

    def handler(request: Request) -> Response:
        seen.append((request.peer.certificate, request.peer.chain))
        return Response(200)

    async with serving(handler, server_tls=server_context(files), client_tls=client_tls) as served:
        client = await served.connect()
        await client.send(GET)
        await client.reply()
    assert seen == [(b"", [])]
