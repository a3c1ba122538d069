"""A webhook that fails, lies or cannot be reached."""

from __future__ import annotations

import asyncio
import base64
import gzip
import socket
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from tests.admission.webhook_server import Answer, allowed, denied, patched, webhook
from tests.admission.webhooks.configurations import MUTATING, NAME, VALIDATING, configure, hook
from tests.loop_turns import counting_turns
from tests.server.in_process import (
    CONFIG_MAPS,
    OPERATIONS,
    InProcess,
    Object,
    config_map,
)


@pytest.mark.parametrize(
    ("status", "code", "message"),
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
    api: InProcess, tmp_path: Path, status: Object, code: int, message: str
) -> None:
    async with webhook(tmp_path, lambda request: denied(request, **status)) as server:
        await configure(api, VALIDATING, hook(server.client_config))
        reply = await api.post(CONFIG_MAPS, config_map())
    assert (reply.status, reply.message) == (code, message)


REVIEW = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
ENVELOPE = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
STATUS = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "in my words"}


def page(status: int, body: bytes | Object, content_type: str = "application/json", **headers: str) -> Answer:
    """Answer with this, whatever the request is."""
    raw = body if isinstance(body, bytes) else orjson.dumps(body)
    return lambda request: web.Response(status=status, body=raw, headers={"content-type": content_type, **headers})


def mistyped(**fields: Any) -> Answer:
    return lambda request: allowed(request, **fields)


UNREADABLE: dict[str, tuple[Answer, str]] = {
    "no body": (page(200, b""), "0-length response with status code: 200 and content type: application/json"),
    "no content": (page(204, b""), "0-length response with status code: 204 and content type: application/json"),
    "a list": (
        page(200, b"[]"),
        f"couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type {ENVELOPE}",
    ),
    "half": (page(200, b'{"kind":'), "couldn't get version/kind; json parse error: unexpected end of JSON input"),
    "another kind": (
        page(200, {"apiVersion": "v1", "kind": "Pod"}),
        'no kind "Pod" is registered for version "v1" in scheme "pkg/util/webhook/client.go:71"',
    ),
    "another version": (
        page(200, REVIEW | {"apiVersion": "admission.k8s.io/v1beta1"}),
        "converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion",
    ),
    "a status": (page(200, STATUS), "converting (v1.Status) to (v1.AdmissionReview): unknown conversion"),
    "400": (page(400, b"x"), "the server rejected our request for an unknown reason"),
    "403": (page(403, b"x"), "unknown"),
    "403 in text": (page(403, b"go away\n", "text/plain"), "go away"),
    "405": (page(405, b"x"), "the server does not allow this method on the requested resource"),
    "409": (page(409, b"x"), "the server reported a conflict"),
    "422": (page(422, b"x"), "the server rejected our request due to an error in our request"),
    "429": (page(429, b"x"), "the server has received too many requests and has asked us to try again later"),
    "500": (page(500, b"x"), 'an error on the server ("unknown") has prevented the request from succeeding'),
    "500 in text": (
        page(500, b'a\n"b"', "text/plain"),
        'an error on the server ("a\\n\\"b\\"") has prevented the request from succeeding',
    ),
    "503": (page(503, b"x"), "the server is currently unable to handle the request"),
    "a failure with a status": (page(500, STATUS), "in my words"),
    "a redirect": (
        page(302, b"", location="https://127.0.0.1/"),
        "the server responded with the status code 302 but did not return more information",
    ),
    "allowed in quotes": (
        mistyped(allowed="true"),
        "json: cannot unmarshal string into Go struct field AdmissionResponse.response.allowed of type bool",
    ),
    "one warning": (
        mistyped(warnings="x"),
        "json: cannot unmarshal string into Go struct field AdmissionResponse.response.warnings of type []string",
    ),
    "a number as an annotation": (
        mistyped(auditAnnotations={"a": 1}),
        "json: cannot unmarshal number into Go struct field AdmissionResponse.response.auditAnnotations of type string",
    ),
    "a text as a status": (
        mistyped(status="x"),
        "json: cannot unmarshal string into Go struct field AdmissionResponse.response.status of type v1.Status",
    ),
    "a cause that is a text": (
        mistyped(status={"details": {"causes": ["x"]}}),
        "json: cannot unmarshal string into Go struct field StatusDetails.response.status.details.causes of type "
        "v1.StatusCause",
    ),
    "a code with a point": (
        mistyped(status={"code": 400.5}),
        "json: cannot unmarshal number 400.5 into Go struct field Status.response.status.code of type int32",
    ),
}


@pytest.mark.parametrize(("answer", "message"), UNREADABLE.values(), ids=UNREADABLE)
async def test_an_answer_that_cannot_be_read_is_reported_in_the_words_of_kubernetes(
    api: InProcess, tmp_path: Path, answer: Answer, message: str
) -> None:
    async with webhook(tmp_path, answer) as server:
        await configure(api, VALIDATING, hook(server.client_config))
        reply = await api.post(CONFIG_MAPS, config_map())
    lead = f'Internal error occurred: failed calling webhook "{NAME}": failed to call webhook: '
    assert (reply.status, reply.message) == (500, lead + message)


@pytest.mark.parametrize("status", [201, 202, 206])
async def test_every_success_is_one(api: InProcess, tmp_path: Path, status: int) -> None:
    async with webhook(tmp_path, lambda request: web.json_response(allowed(request), status=status)) as server:
        await configure(api, VALIDATING, hook(server.client_config))
        assert (await api.post(CONFIG_MAPS, config_map())).status == 201


async def test_an_answer_may_be_packed_in_several_members(api: InProcess, tmp_path: Path) -> None:
    def answer(request: Object) -> web.Response:
        raw = orjson.dumps(allowed(request))
        return packed(gzip.compress(raw[:20]) + gzip.compress(raw[20:]))

    async with webhook(tmp_path, answer) as server:
        await configure(api, VALIDATING, hook(server.client_config))
        assert (await api.post(CONFIG_MAPS, config_map())).status == 201


def packed(body: bytes) -> web.Response:
    return web.Response(body=body, headers={"content-type": "application/json", "content-encoding": "gzip"})


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(b"nothing packed", "gzip: invalid header", id="not packed"),
        pytest.param(
            gzip.compress(bytes(40 << 20), 1), "control characters are not allowed", id="much larger than it seems"
        ),
    ],
)
async def test_a_packed_answer_that_is_none_is_an_error_of_bounded_size(
    api: InProcess, tmp_path: Path, body: bytes, message: str
) -> None:
    async with webhook(tmp_path, lambda request: packed(body)) as server:
        await configure(api, VALIDATING, hook(server.client_config))
        async with counting_turns() as turns:
            reply = await api.post(CONFIG_MAPS, config_map())
    assert reply.status == 500
    assert message in reply.message
    assert turns.count > 2


async def test_an_answer_may_be_yaml(api: InProcess, tmp_path: Path) -> None:
    text = "apiVersion: admission.k8s.io/v1\nkind: AdmissionReview\nresponse: {uid: %s, allowed: true}"
    async with webhook(tmp_path, lambda request: web.Response(text=text % request["uid"])) as server:
        await configure(api, VALIDATING, hook(server.client_config))
        assert (await api.post(CONFIG_MAPS, config_map())).status == 201


async def test_a_webhook_that_asks_for_another_call_is_called_again(api: InProcess, tmp_path: Path) -> None:
    answers = iter([web.Response(status=503, headers={"retry-after": "0"})])
    async with webhook(tmp_path, lambda request: next(answers, None) or allowed(request)) as server:
        await configure(api, VALIDATING, hook(server.client_config))
        assert (await api.post(CONFIG_MAPS, config_map())).status == 201
    assert len(server.requests) == 2


async def test_warnings_with_control_characters_are_dropped(api: InProcess, tmp_path: Path) -> None:
    warnings = ["plain", "two\nlines", "", "\x1b[31mred", "a\r\nSet-Cookie: b=c"]
    async with webhook(tmp_path, lambda request: allowed(request, warnings=warnings)) as server:
        await configure(api, VALIDATING, hook(server.client_config))
        reply = await api.post(CONFIG_MAPS, config_map())
    assert reply.header("warning") == ['299 - "plain"']


async def test_a_denial_may_ask_for_patience(api: InProcess, tmp_path: Path) -> None:
    async with webhook(tmp_path, lambda request: denied(request, code=429, details={"retryAfterSeconds": 3})) as server:
        await configure(api, VALIDATING, hook(server.client_config))
        reply = await api.post(CONFIG_MAPS, config_map())
    assert (reply.status, reply.header("retry-after")) == (429, ["3"])


PATCHES: dict[str, tuple[bytes, str, str]] = {
    "no list": (
        b"{}",
        "JSONPatch",
        "received undecodable patch in webhook response: json: cannot unmarshal object into Go value of type "
        "jsonpatch.Patch",
    ),
    "no JSON": (
        b"x",
        "JSONPatch",
        "received undecodable patch in webhook response: invalid character 'x' looking for beginning of value",
    ),
    "another type": (b'[{"op": "remove", "path": "/data"}]', "Merge", 'unsupported patch type "Merge"'),
}


@pytest.mark.parametrize(("patch", "patch_type", "message"), PATCHES.values(), ids=PATCHES)
async def test_a_patch_that_is_none_is_refused(
    api: InProcess, tmp_path: Path, patch: bytes, patch_type: str, message: str
) -> None:
    encoded = base64.b64encode(patch).decode()
    async with webhook(tmp_path, lambda request: allowed(request, patchType=patch_type, patch=encoded)) as server:
        await configure(api, MUTATING, hook(server.client_config))
        reply = await api.post(CONFIG_MAPS, config_map())
    lead = f'Internal error occurred: failed calling webhook "{NAME}": '
    assert (reply.status, reply.message) == (500, lead + message)


ADDRESSES: dict[str, tuple[str, str]] = {
    "a port beyond the last": ("https://127.0.0.1:99999/", "dial tcp: address 99999: invalid port"),
    "half an address": ("https://127.1:443/", "dial tcp: lookup 127.1: no such host"),
}


@pytest.mark.parametrize(("url", "message"), ADDRESSES.values(), ids=ADDRESSES)
async def test_an_address_that_cannot_be_dialled_is_reported(api: InProcess, url: str, message: str) -> None:
    await configure(api, VALIDATING, hook({"url": url}))
    reply = await api.post(CONFIG_MAPS, config_map())
    assert reply.message.endswith(f'failed to call webhook: Post "{url}?timeout=10s": {message}')


def late(request: Object) -> Any:
    async def wait() -> Object:
        await asyncio.sleep(30)
        return allowed(request)

    return wait()


@pytest.mark.parametrize(
    ("answer", "message"),
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
            "failed to call webhook: illegal base64 data at input byte 0",
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
    api: InProcess, tmp_path: Path, answer: Answer, message: str
) -> None:
    async with webhook(tmp_path, answer) as server:
        await configure(api, MUTATING, hook(server.client_config, timeoutSeconds=1))
        reply = await api.post(CONFIG_MAPS, config_map())
        assert reply.status == 500
        assert reply.message.startswith(f'Internal error occurred: failed calling webhook "{NAME}": ')
        assert message in reply.message
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
    assert server.requests == []


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
