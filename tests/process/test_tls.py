"""Certificates are trusted as Go's TLS trusts them, and those that pinnace makes satisfy strict verifiers too."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.auth.intermediates import intermediate

from pinnace.auth.certificates.authority import issue, new_ca
from pinnace.process.tls import client_tls
from pinnace.sdk.operator.certificates import new_certificate


@pytest.mark.parametrize("trusted", ["root", "intermediate", "leaf", "other"])
@pytest.mark.parametrize("is_file", [True, False], ids=["file", "text"])
async def test_any_certificate_of_the_chain_may_be_trusted(tmp_path: Path, trusted: str, is_file: bool) -> None:
    root = new_ca()
    between = intermediate(root)
    leaf = issue(between, common_name="server", server_names=("127.0.0.1",))
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    chain.write_bytes(leaf.certificate_pem + between.certificate_pem)
    key.write_bytes(leaf.key_pem)
    bundle = {"root": root, "intermediate": between, "leaf": leaf, "other": new_ca()}[trusted].certificate_pem
    (tmp_path / "bundle.pem").write_bytes(bundle)
    context = client_tls(ca_file=tmp_path / "bundle.pem") if is_file else client_tls(ca=bundle.decode())
    if trusted == "other":
        with pytest.raises(ssl.SSLCertVerificationError):
            await connect(chain, key, context)
    else:
        await connect(chain, key, context)


async def connect(chain: Path, key: Path, context: ssl.SSLContext) -> None:
    """Connect to a server that shows this certificate."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(chain, key)
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0, ssl=serving)
    async with server:
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname(), ssl=context)
        writer.close()


def cluster_certificate() -> tuple[bytes, bytes, bytes]:
    ca = new_ca()
    leaf = issue(ca, common_name="server", server_names=("127.0.0.1",))
    return ca.certificate_pem, leaf.certificate_pem, leaf.key_pem


def intermediate_certificate() -> tuple[bytes, bytes, bytes]:
    ca = new_ca()
    between = intermediate(ca)
    leaf = issue(between, common_name="server", server_names=("127.0.0.1",))
    return ca.certificate_pem, leaf.certificate_pem + between.certificate_pem, leaf.key_pem


def webhook_certificate() -> tuple[bytes, bytes, bytes]:
    made = new_certificate(["127.0.0.1"], now=datetime.now(UTC))
    return made.ca, made.certificate, made.key


@pytest.mark.parametrize("make", [cluster_certificate, intermediate_certificate, webhook_certificate])
async def test_certificates_satisfy_a_strict_verifier(
    tmp_path: Path, make: Callable[[], tuple[bytes, bytes, bytes]]
) -> None:
    ca, certificate, key = make()
    (tmp_path / "chain.pem").write_bytes(certificate)
    (tmp_path / "key.pem").write_bytes(key)
    strict = ssl.create_default_context(cadata=ca.decode())
    strict.verify_flags |= ssl.VERIFY_X509_STRICT  # The default since Python 3.13.
    await connect(tmp_path / "chain.pem", tmp_path / "key.pem", strict)
