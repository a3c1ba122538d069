"""No malformed answer of another server breaks a client within ours, nor reaches our clients as more than an error."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from tests.hostile.malformed import Malformed, MalformedServer, Reply, malformed_server
from tests.server.in_process import CONFIG_MAPS, InProcess, config_map, control_plane

from pinnace.auth.authentication.authenticators import BadToken
from pinnace.auth.remote import Remote
from pinnace.auth.webhooks import WebhookAuthorizer, WebhookTokens
from pinnace.cluster.in_process import in_process_client
from pinnace.extensions.aggregation.backends import CheckFailed, Connections, HttpBackend
from pinnace.model import errors
from pinnace.model.authorization import Action, Decision
from pinnace.model.node_connections import CommandStreams, ContainerLogOptions, PodAddress
from pinnace.model.users import User
from pinnace.process.tasks import Tasks
from pinnace.process.work_slices import SliceQueue
from pinnace.server.aggregation import forward
from pinnace.server.local import NoTransport
from pinnace.server.streaming.kubelets import Kubelet
from pinnace.serving.local_streams import LocalStream
from pinnace.serving.messages import Peer, Request, RequestHead, StreamingResponse
from pinnace.serving.responses import Responses

ROUND = 500
"""How many answers one test sends."""
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 20))]
"""10,000 answers for each client."""
by_seed = pytest.mark.parametrize("seed", SEEDS)
HOOKS = "/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ROOT = "/apis/kitchen.example.com/v1"
RECIPE = {
    "apiVersion": "kitchen.example.com/v1",
    "kind": "Recipe",
    "metadata": {"name": "soup", "namespace": "default", "resourceVersion": "7", "uid": "u", "labels": {"a": "b"}},
    "spec": {"minutes": 20},
}
STATUS = {
    "kind": "Status",
    "apiVersion": "v1",
    "status": "Failure",
    "message": "no",
    "reason": "Invalid",
    "details": {
        "name": "soup",
        "kind": "recipes",
        "causes": [{"reason": "FieldValueInvalid", "message": "m", "field": "spec"}],
        "retryAfterSeconds": 1,
    },
    "code": 422,
}
ROW = {"name": "recipes", "singularName": "recipe", "namespaced": True, "kind": "Recipe", "verbs": ["get", "list"]}
DISCOVERY = {
    "kind": "APIResourceList",
    "apiVersion": "v1",
    "groupVersion": "kitchen.example.com/v1",
    "resources": [ROW],
}
PATHS = {
    "paths": {"apis/kitchen.example.com/v1": {"serverRelativeURL": "/openapi/v3/apis/kitchen.example.com/v1?hash=A"}}
}


@pytest.fixture(autouse=True)
def no_traceback(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail the test if anything logs a traceback, which means an error that is not expected."""
    caplog.set_level(logging.WARNING)
    yield
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[MalformedServer]:
    async with malformed_server(tmp_path, "kitchen.default.svc") as running:
        yield running


@contextmanager
def sending_errors() -> Iterator[None]:
    """Expect errors that can be sent to our client."""
    try:
        yield
    except errors.ApiError as error:
        answer = Responses(SliceQueue()).render_error(request("GET", "/"), error)
        assert type(answer.status) is int and 400 <= answer.status <= 599
        assert isinstance(answer.body, bytes) and json.loads(answer.body)["kind"] == "Status"


def answer_with(malformed: Malformed, document: Any, code: int = 200) -> Reply:
    return lambda line, body: malformed.http(document, code=code)


class Loopback:
    """Finds every service at the malformed server."""

    def __init__(self, port: int) -> None:
        self._port = port

    def address_of(self, namespace: str, name: str, port: int) -> tuple[str, int]:
        return "127.0.0.1", self._port


# The aggregated API server.


@pytest.fixture
async def backend(server: MalformedServer) -> AsyncIterator[HttpBackend]:
    spec = {
        "group": "kitchen.example.com",
        "version": "v1",
        "service": {"namespace": "default", "name": "kitchen"},
        "caBundle": base64.b64encode(server.ca).decode(),
    }
    connections = Connections(Loopback(server.port))
    yield HttpBackend({"metadata": {"name": "v1.kitchen.example.com"}, "spec": spec}, connections)
    await connections.close()


def request(method: str, target: str, body: bytes = b"") -> Request:
    path, _, query = target.partition("?")
    return Request(
        method, target, path, query, RequestHead({b"accept": b"application/json"}), body, Peer(NoTransport())
    )


@by_seed
async def test_malformed_answers_of_an_aggregated_server_are_errors(
    server: MalformedServer, backend: HttpBackend, seed: int
) -> None:
    malformed = Malformed(seed)
    valid: list[tuple[str, Any]] = [
        ("check", DISCOVERY),
        ("openapi index", PATHS),
        ("openapi", {"components": {"schemas": {}}}),
        ("openapi v2", {"definitions": {}}),
        *((target, RECIPE) for target in (f"{ROOT}/namespaces/default/recipes/soup", f"{ROOT}/recipes?watch=1")),
        (f"{ROOT}/recipes", {"kind": "RecipeList", "metadata": {"resourceVersion": "1"}, "items": [RECIPE]}),
        (f"{ROOT}/namespaces/default/recipes/none", STATUS),
    ]
    for _ in range(ROUND):
        what, document = malformed.rng.choice(valid)
        code = 422 if document is STATUS else 200
        server.reply = answer_with(malformed, document, code)
        async with asyncio.timeout(60):
            await ask_backend(backend, what)


async def ask_backend(backend: HttpBackend, what: str) -> None:
    if what == "check":
        with suppress(CheckFailed):
            backend.resources = await backend.check()
    elif what == "openapi index":
        await backend.look_for_openapi()
    elif what == "openapi":
        with suppress(OSError, TimeoutError):
            await backend.openapi()
    elif what == "openapi v2":
        await backend.openapi_v2()
    else:
        action = Action("get", "", "kitchen.example.com", "recipes", "", "default", "soup", "v1")
        with sending_errors():
            answer = await forward(request("GET", what), User("bob"), backend, action)
            assert 100 <= answer.status <= 999
            if isinstance(answer, StreamingResponse):
                with suppress(ConnectionResetError):
                    async for _ in LocalStream(answer):
                        pass


# Webhooks.


def client_config(server: MalformedServer) -> Any:
    return {"url": f"https://127.0.0.1:{server.port}/", "caBundle": base64.b64encode(server.ca).decode()}


@pytest.fixture
async def api() -> AsyncIterator[InProcess]:
    async with control_plane() as plane:
        yield plane
        await plane.plane.webhooks.close()


@by_seed
async def test_malformed_answers_of_an_admission_webhook_are_errors(
    server: MalformedServer, api: InProcess, seed: int
) -> None:
    malformed = Malformed(1000 + seed)
    for kind in ("Mutating", "Validating"):
        hook = {
            "name": "a.example.com",
            "clientConfig": client_config(server),
            "rules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
            ],
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "timeoutSeconds": 5,
        }
        await api.made(HOOKS.format(kind.lower()), {"metadata": {"name": "a"}, "webhooks": [hook]})
    patch = base64.b64encode(b'[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]').decode()
    patches = [patch, base64.b64encode(b'[{"op":"add"}]').decode(), "%%%", base64.b64encode(b"null").decode()]

    def reply(line: str, body: bytes) -> bytes:
        response: dict[str, Any] = {"uid": json.loads(body)["request"]["uid"], "allowed": True}
        if malformed.rng.random() < 0.5:
            response |= {"patchType": "JSONPatch", "patch": malformed.rng.choice(patches), "warnings": ["w"]}
        if malformed.rng.random() < 0.3:
            response |= {"allowed": False, "status": STATUS}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
        return malformed.http(review)

    server.reply = reply
    for number in range(ROUND):
        async with asyncio.timeout(60):
            answer = await api.post(f"{CONFIG_MAPS}?dryRun=All", config_map(f"a-{number}"))
        # A webhook that says no chooses the code; one that cannot be asked is our 500.
        assert 400 <= answer.status <= 599 or answer.status == 201, answer.body
        assert "Traceback" not in answer.body.decode()
        assert answer.json["kind"] in ("Status", "ConfigMap")


@by_seed
async def test_malformed_answers_of_a_conversion_webhook_are_errors(
    server: MalformedServer, api: InProcess, seed: int
) -> None:
    malformed = Malformed(2000 + seed)
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    conversion = {"clientConfig": client_config(server), "conversionReviewVersions": ["v1"]}
    names = {"plural": "boats", "singular": "boat", "kind": "Boat", "listKind": "BoatList"}
    versions = [{"name": f"v{n}", "served": True, "storage": n == 1, "schema": schema} for n in (1, 2)]
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": versions}
    spec["conversion"] = {"strategy": "Webhook", "webhook": conversion}
    async with Tasks() as tasks:
        tasks.start(api.plane.custom_resources.run(in_process_client(api.plane.local())))
        await api.made(DEFINITIONS, {"metadata": {"name": "boats.example.com"}, "spec": spec})
        boats = "/apis/example.com/{}/namespaces/default/boats"
        async with asyncio.timeout(60):
            while (await api.get(boats.format("v1"))).status != 200:
                await asyncio.sleep(0.01)
        await api.made(boats.format("v1"), {"apiVersion": "example.com/v1", "kind": "Boat", "metadata": {"name": "a"}})

        def reply(line: str, body: bytes) -> bytes:
            review = json.loads(body)
            wanted = review["request"]["desiredAPIVersion"]
            objects = [{**obj, "apiVersion": wanted} for obj in review["request"]["objects"]]
            answer = {"uid": review["request"]["uid"], "result": {"status": "Success"}, "convertedObjects": objects}
            return malformed.http({"apiVersion": review["apiVersion"], "kind": "ConversionReview", "response": answer})

        server.reply = reply
        for number in range(ROUND):
            async with asyncio.timeout(60):  # Answers are kept: only a changed object is converted again.
                await api.patch(boats.format("v1") + "/a", {"spec": {"size": number}})
                answer = await api.get(boats.format("v2") + ("/a", "")[number % 2])
            assert answer.status in (200, 500), answer.body
            assert "Traceback" not in answer.body.decode()
        assert (await api.get(boats.format("v1"))).names == ["a"]
        assert server.connections > ROUND // 2


class FixedClock:
    def now(self) -> datetime:
        return datetime(2026, 1, 2, tzinfo=UTC)


@by_seed
async def test_malformed_answers_of_authentication_and_authorization_webhooks_are_errors(
    server: MalformedServer, seed: int
) -> None:
    malformed = Malformed(3000 + seed)
    remote = Remote(f"http://127.0.0.1:{server.plain_port}/", timeout=5)
    tokens, authorizer = WebhookTokens(remote, FixedClock()), WebhookAuthorizer(remote, FixedClock())
    user = {"username": "bob", "uid": "7", "groups": ["devs"], "extra": {"scopes": ["a"]}}
    known = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview"}
    valid = [
        {**known, "status": {"authenticated": True, "user": user, "audiences": ["a"]}},
        {"apiVersion": "authorization.k8s.io/v1", "status": {"allowed": True, "denied": False, "reason": "r"}},
    ]
    for number in range(ROUND):
        server.reply = answer_with(malformed, valid[number % 2])
        async with asyncio.timeout(60):
            if number % 2:
                decision: Decision | Awaitable[Decision] = authorizer.decide(User(f"u{number}"), Action("get"))
                decision = decision if isinstance(decision, Decision) else await decision
                assert isinstance(decision.is_allowed, bool)
            else:
                with suppress(BadToken):
                    search = tokens.find(f"t{number}", ())
                    bearer = await search if isinstance(search, Awaitable) else search
                    assert bearer is None or isinstance(bearer.user.name, str)


# The kubelet.


class Output:
    """Takes what a command writes."""

    def write(self, data: bytes, /) -> None: ...
    async def drain(self) -> None: ...
    def write_eof(self) -> None: ...
    def close(self) -> None: ...


async def read_logs(kubelet: Kubelet, pod: PodAddress) -> None:
    async for _ in await kubelet.logs(pod, "main", ContainerLogOptions()):
        pass


async def run_command(kubelet: Kubelet, pod: PodAddress) -> None:
    code = await kubelet.exec(pod, "main", ["true"], CommandStreams(stdin=None, stdout=Output(), stderr=Output()))
    assert isinstance(code, int)


async def forward_port(kubelet: Kubelet, pod: PodAddress) -> None:
    connection = await kubelet.connect(pod, 80)
    try:
        connection.writer.write(b"hello")
        await connection.writer.drain()
        while await connection.reader.read(1000):
            pass
    finally:
        connection.writer.close()


async def ask_page(kubelet: Kubelet, pod: PodAddress) -> None:
    answer = await kubelet.ask("GET", "/metrics", [], b"")
    try:
        async for _ in answer.chunks():
            pass
    finally:
        answer.close()


USES: list[Callable[[Kubelet, PodAddress], Awaitable[None]]] = [read_logs, run_command, forward_port, ask_page]
UPGRADED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"


def spdy(malformed: Malformed) -> bytes:
    """Return some frames: control or data, of known and unknown types, with lengths that may be wrong."""
    rng, data = malformed.rng, b""
    for _ in range(rng.randrange(6)):
        payload = rng.randbytes(rng.choice((0, 4, 8, 12, 60)))
        length = len(payload) if rng.random() < 0.7 else rng.choice((0, 3, len(payload) + 5, 0xFFFFFF))
        if rng.random() < 0.7:
            head = b"\x80\x03" + bytes([0, rng.choice((1, 2, 3, 4, 6, 7, 8, 9, 77, 255))])
        else:
            head = rng.choice((1, 3, 5, 0, 2**31 - 1)).to_bytes(4, "big")
        data += head + bytes([rng.choice((0, 1, 255))]) + length.to_bytes(3, "big") + payload
    return data


@by_seed
async def test_malformed_answers_of_a_kubelet_are_errors(server: MalformedServer, seed: int) -> None:
    malformed = Malformed(4000 + seed)
    kubelet = Kubelet("127.0.0.1", server.plain_port, lambda: cast(ssl.SSLContext, None))
    pod = PodAddress("default", "web", "uid")

    def reply(line: str, body: bytes) -> bytes:
        if line.startswith("POST") and malformed.rng.random() < 0.7:
            return UPGRADED + spdy(malformed)
        return malformed.http(STATUS, code=malformed.rng.choice((200, 404, 500)))

    server.reply = reply
    for number in range(ROUND):
        async with asyncio.timeout(60):
            with suppress(OSError), sending_errors():
                await USES[number % len(USES)](kubelet, pod)
