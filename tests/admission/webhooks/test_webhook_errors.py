"""A webhook that fails, lies or cannot be reached."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.admission.webhook_server import Answer, allowed, denied, patched, webhook
from tests.admission.webhooks.configurations import MUTATING, NAME, VALIDATING, configure, hook
from tests.server.in_process import (
    CONFIG_MAPS,
    OPERATIONS,
    InProcess,
    Object,
    config_map,
)


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        ({"message": "not today", "code": 418}, 418, f'admission webhook "{NAME}" denied the request: not today'),
        ({"reason": "Forbidden"}, 400, f'admission webhook "{NAME}" denied the request: Forbidden'),
        ({}, 400, f'admission webhook "{NAME}" denied the request without explanation'),
        ({"code": 200, "message": "fine"}, 400, f'admission webhook "{NAME}" denied the request: fine'),
        ({"code": 1000, "message": "odd"}, 500, f'admission webhook "{NAME}" denied the request: odd'),
    ],
    ids=[
        "with a code",
        "with a reason",
        "without a word",
        "with a code that means success",
        "with a code of four digits",
    ],
)
async def test_a_refusal_is_reported_in_the_webhooks_words(
    api: InProcess, tmp_path: Path, status: Object, code: int, said: str
) -> None:
    async with webhook(tmp_path, lambda request: denied(request, **status)) as server:
        await configure(api, VALIDATING, hook(server.client_config))
        reply = await api.post(CONFIG_MAPS, config_map())
    assert (reply.status, reply.message) == (code, said)


def late(request: Object) -> Any:
    async def wait() -> Object:
        await asyncio.sleep(30)
        return allowed(request)

    return wait()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda request: allowed({"uid": "other"}), "received invalid webhook response: expected response.uid="),
        (lambda request: {"kind": "AdmissionReview"}, "received invalid webhook response: webhook response was absent"),
        (lambda request: web.Response(text="what?"), "failed to call webhook: couldn't get version/kind"),
        (lambda request: web.Response(status=500, text="oh"), 'failed to call webhook: an error on the server ("oh")'),
        (lambda request: web.Response(status=404), "failed to call webhook: the server could not find"),
        (
            lambda request: allowed(request, patchType="JSONPatch"),
            "received invalid webhook response: webhook returned response.patchType but not response.patch",
        ),
        (
            lambda request: allowed(request, patchType="JSONPatch", patch="!"),
            "received invalid webhook response: received undecodable patch in webhook response",
        ),
        (
            lambda request: denied(request, code=99999999999),
            "failed to call webhook: json: cannot unmarshal number 99999999999",
        ),
        (late, '?timeout=1s": context deadline exceeded'),
    ],
    ids=[
        "wrong uid",
        "no response",
        "no JSON",
        "an error",
        "not found",
        "half a patch",
        "garbage",
        "a huge code",
        "hangs",
    ],
)
async def test_a_webhook_that_fails_closes_or_opens_the_door(
    api: InProcess, tmp_path: Path, answer: Answer, said: str
) -> None:
    async with webhook(tmp_path, answer) as server:
        await configure(api, MUTATING, hook(server.client_config, timeoutSeconds=1))
        reply = await api.post(CONFIG_MAPS, config_map())
        assert reply.status == 500
        assert reply.message.startswith(f'Internal error occurred: failed calling webhook "{NAME}": ')
        assert said in reply.message
        opened = [{"op": "add", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]
        await api.patch(f"{MUTATING}/one", opened, OPERATIONS)
        assert (await api.post(CONFIG_MAPS, config_map())).status == 201


async def test_a_refused_connection_is_reported_in_the_words_of_go(api: InProcess) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        await configure(api, VALIDATING, hook({"url": f"https://127.0.0.1:{port}/x"}))
        reply = await api.post(CONFIG_MAPS, config_map())
    assert reply.message == (
        f'Internal error occurred: failed calling webhook "{NAME}": failed to call webhook: '
        f'Post "https://127.0.0.1:{port}/x?timeout=10s": dial tcp 127.0.0.1:{port}: connect: connection refused'
    )


async def test_a_webhook_that_no_known_ca_vouches_for_is_not_believed(api: InProcess, tmp_path: Path) -> None:
    async with webhook(tmp_path, allowed) as server:
        await configure(api, VALIDATING, hook({"url": server.url}))
        reply = await api.post(CONFIG_MAPS, config_map())
    assert "tls: failed to verify certificate: x509: certificate signed by unknown authority" in reply.message
    assert server.asked == []


@pytest.mark.parametrize(("bundle", "status"), [("root", 201), ("intermediate", 201), ("leaf", 201), ("other", 500)])
async def test_a_bundle_is_trusted_as_go_trusts_it(api: InProcess, tmp_path: Path, bundle: str, status: int) -> None:
    async with webhook(tmp_path, allowed) as server:
        await configure(api, VALIDATING, hook({"url": server.url, "caBundle": server.bundles[bundle]}))
        assert (await api.post(CONFIG_MAPS, config_map())).status == status


@pytest.mark.parametrize(
    ("configured", "sent"),
    [
        ("", "/"),
        ("/", "/"),
        ("//a", "/a"),
        ("/a/", "/a"),
        ("/a//b", "/a/b"),
        ("/a/../b", "/b"),
        ("/a%2Fb", "/a/b"),
        ("/a%20b", "/a%20b"),
        ("/é", "/%C3%A9"),
    ],
)
async def test_a_path_is_cleaned_as_kubernetes_cleans_it(
    api: InProcess, tmp_path: Path, configured: str, sent: str
) -> None:
    async with webhook(tmp_path, allowed) as server:
        url = server.url.removesuffix("/ask") + configured
        await configure(api, VALIDATING, hook({"url": url, "caBundle": server.bundle}))
        assert (await api.post(CONFIG_MAPS, config_map())).status == 201
    assert server.paths == [sent]


@pytest.mark.parametrize(
    "operations",
    [
        [{"op": "replace", "path": "/metadata/name", "value": "other"}],
        [{"op": "replace", "path": "/metadata/namespace", "value": "kube-system"}],
        [{"op": "replace", "path": "/kind", "value": "Secret"}],
        [{"op": "remove", "path": "/metadata"}],
        [{"op": "replace", "path": "/data", "value": "text"}],
        [{"op": "remove", "path": "/nowhere"}],
        [{"op": "dance", "path": "/data"}],
    ],
    ids=["name", "namespace", "kind", "metadata", "type", "missing", "no operation"],
)
async def test_a_patch_cannot_make_something_else_of_the_object(
    api: InProcess, tmp_path: Path, operations: list[Object]
) -> None:
    async with webhook(tmp_path, lambda request: patched(request, *operations)) as server:
        await configure(api, MUTATING, hook(server.client_config))
        assert (await api.post(CONFIG_MAPS, config_map("a", {"x": "y"}))).status in (400, 422, 500)
        assert (await api.get(CONFIG_MAPS)).names == []


async def test_a_uid_that_a_webhook_makes_up_is_not_kept(api: InProcess, tmp_path: Path) -> None:
    forge = [{"op": "add", "path": "/metadata/uid", "value": "forged"}]
    async with webhook(tmp_path, lambda request: patched(request, *forge)) as server:
        await configure(api, MUTATING, hook(server.client_config))
        assert (await api.made(CONFIG_MAPS, config_map()))["metadata"]["uid"] != "forged"
