"""Tokens of service accounts authenticate requests."""

from __future__ import annotations

import logging
from base64 import b64encode
from functools import partial

import pytest
from tests.server.in_process import InProcess
from tests.server.roles import ACCOUNTS, AUTHENTICATION, BINDINGS, CONFIG_MAPS, binding, from_the_wire, review


async def test_a_token_comes_from_its_account_and_goes_with_it(api: InProcess) -> None:
    await api.made(ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}})
    await api.made(BINDINGS, binding("robots", "view", user="system:serviceaccount:default:robot"))
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = (await api.made(f"{ACCOUNTS}/robot/token", request))["status"]["token"]
    bearer = f"Bearer {token}"
    assert (await from_the_wire(api, CONFIG_MAPS, authorization=bearer)).status == 200
    assert (await from_the_wire(api, "/api/v1/namespaces/default/secrets", authorization=bearer)).status == 403
    reviewed = await review(api, "tokenreviews", "TokenReview", {"token": token}, AUTHENTICATION)
    assert reviewed["authenticated"] is True
    assert reviewed["user"]["username"] == "system:serviceaccount:default:robot"
    elsewhere = await review(
        api, "tokenreviews", "TokenReview", {"token": token, "audiences": ["vault"]}, AUTHENTICATION
    )
    assert elsewhere["user"] == {}
    assert elsewhere["error"].startswith("[invalid bearer token, token audiences")
    await api.delete(f"{ACCOUNTS}/robot")
    assert (await from_the_wire(api, CONFIG_MAPS, authorization=bearer)).status == 401


@pytest.mark.parametrize("token", ["guess", "a.b.c", "eyJhbGciOiJub25lIn0.e30.", "e30.e30.e30", "\u00e9"])
async def test_a_bad_token_is_refused_and_never_reported(
    api: InProcess, token: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    reply = await from_the_wire(api, CONFIG_MAPS, authorization=f"Bearer {token}")
    assert (reply.status, reply.message) == (401, "Unauthorized")
    assert token not in caplog.text


async def test_a_websocket_names_its_token_as_a_protocol(api: InProcess) -> None:
    await api.made(ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = (await api.made(f"{ACCOUNTS}/robot/token", request))["status"]["token"]
    encoded = b64encode(token.encode()).decode().rstrip("=").replace("+", "-").replace("/", "_")
    protocols = f"v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.{encoded}"
    asking = partial(from_the_wire, api, CONFIG_MAPS, is_upgrade=True, upgrade="websocket")
    reply = await asking(sec_websocket_protocol=protocols)
    assert 'User "system:serviceaccount:default:robot"' in reply.message
    plain = await from_the_wire(api, CONFIG_MAPS, sec_websocket_protocol=protocols)
    assert 'User "system:anonymous"' in plain.message
    alone = protocols.removeprefix("v4.channel.k8s.io, ")
    for bad in (alone, f"{protocols}, {alone}", f"{protocols}*", protocols.replace(encoded, "_w")):
        assert (await asking(sec_websocket_protocol=bad)).status == 401


async def test_headers_of_proxies_mean_nothing_from_others(api: InProcess) -> None:
    reply = await from_the_wire(api, CONFIG_MAPS, x_remote_user="admin", x_remote_group="system:masters")
    assert (reply.status, 'User "system:anonymous"' in reply.message) == (403, True)


async def test_token_keys_are_published(api: InProcess) -> None:
    keys = (await api.get("/openid/v1/jwks")).json["keys"]
    assert [(key["kty"], key["crv"], key["alg"], "d" in key) for key in keys] == [("EC", "P-256", "ES256", False)]
    obj = await api.get("/.well-known/openid-configuration", host="api.example:6443")
    assert obj.json["jwks_uri"] == "https://api.example:6443/openid/v1/jwks"
    assert obj.header("cache-control") == ["public, max-age=3600"]
