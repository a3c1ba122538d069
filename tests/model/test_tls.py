"""Certificates are trusted as Go's TLS trusts them: roots, intermediate ones, and a server's own."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
from tests.auth.intermediates import intermediate

from pinnace.auth.certificates.authority import issue, new_ca
from pinnace.model.tls import client_tls


@pytest.mark.parametrize("trusted", ["root", "intermediate", "leaf", "other"])
@pytest.mark.parametrize("is_file", [True, False], ids=["file", "text"])
async def test_any_certificate_of_the_chain_may_be_trusted(tmp_path: Path, trusted: str, is_file: bool) -> None:
    root = new_ca()
    between = intermediate(root)
    leaf = issue(between, common_name="server", server_names=("127.0.0.1",))
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    chain.write_bytes(leaf.certificate_pem + between.certificate_pem)
    key.write_bytes(leaf.key_pem)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(chain, key)
    bundle = {"root": root, "intermediate": between, "leaf": leaf, "other": new_ca()}[trusted].certificate_pem
    (tmp_path / "bundle.pem").write_bytes(bundle)
    context = client_tls(ca_file=tmp_path / "bundle.pem") if is_file else client_tls(ca=bundle.decode())
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0, ssl=serving)
    async with server:
        connecting = asyncio.open_connection(*server.sockets[0].getsockname(), ssl=context)
        if trusted == "other":
            with pytest.raises(ssl.SSLCertVerificationError):
                await connecting
        else:
            _, writer = await connecting
            writer.close()
