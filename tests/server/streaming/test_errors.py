"""Streaming requests that fail, with the error messages of a real server, 1.36."""

from __future__ import annotations

from collections.abc import AsyncIterator

import orjson
import pytest
from tests.server.in_process import PODS, InProcess, control_plane
from tests.server.streaming.conftest import furnish, made, run_pod

from pinnace.cluster.control_plane import build
from pinnace.cluster.settings import Settings
from pinnace.model.objects import Object
from pinnace.model.users import User
from pinnace.server.bootstrap.creation import bootstrap
from pinnace.store.memory import MemoryStore

NODES = "/api/v1/nodes"
SERVICES = "/api/v1/namespaces/default/services"
UPGRADE = {"connection": "Upgrade", "upgrade": "SPDY/3.1", "x-stream-protocol-version": "v4.channel.k8s.io"}
CONVERSION = 'cannot convert to []int32: strconv.ParseUint: parsing "abc": invalid syntax'
YESTERDAY = 'parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006"'
TWICE = "at most one of `sinceTime` or `sinceSeconds` may be specified"
UNREACHED = (
    'Get "https://127.0.0.1:1/containerLogs/default/far/main": dial tcp 127.0.0.1:1: connect: connection refused'
)

TABLE: list[tuple[str, str, int, str]] = [
    ("GET", f"{PODS}/absent/log", 404, 'pods "absent" not found'),
    ("POST", f"{PODS}/absent/exec?command=ls&stdout=1", 404, 'pods "absent" not found'),
    ("POST", f"{PODS}/waiting/exec?command=ls&stdout=1", 400, "pod waiting does not have a host assigned"),
    ("POST", f"{PODS}/waiting/portforward", 400, "pod waiting does not have a host assigned"),
    ("GET", f"{PODS}/two/log", 400, "a container name must be specified for pod two, choose one of: [first second]"),
    ("GET", f"{PODS}/two/log?container=x", 400, "container x is not valid for pod two"),
    ("POST", f"{PODS}/two/attach?container=x", 400, "container x is not valid for pod two"),
    ("POST", f"{PODS}/web/exec?command=ls&stdout=1", 400, "Upgrade request required"),
    ("GET", f"{PODS}/web/attach?stdout=1", 400, "Upgrade request required"),
    ("POST", f"{PODS}/web/portforward", 400, "Upgrade request required"),
    ("POST", f"{PODS}/web/exec?command=ls&stdout=1&dryRun=All", 400, "dryRun is not supported"),
    ("POST", f"{PODS}/web/portforward?ports=abc", 400, CONVERSION),
    ("GET", f"{PODS}/web/log?tailLines=abc", 400, 'strconv.ParseInt: parsing "abc": invalid syntax'),
    ("GET", f"{PODS}/web/log?sinceTime=yesterday", 400, YESTERDAY),
    (
        "GET",
        f"{PODS}/web/log?tailLines=-1&limitBytes=0&sinceSeconds=0",
        422,
        'PodLogOptions "web" is invalid: [tailLines: Invalid value: -1: must be greater than or equal to 0, '
        "limitBytes: Invalid value: 0: must be greater than 0, sinceSeconds: Invalid value: 0: must be greater than 0]",
    ),
    (
        "GET",
        f"{PODS}/web/log?sinceSeconds=3&sinceTime=2020-01-01T00:00:00Z",
        422,
        f'PodLogOptions "web" is invalid: []: Forbidden: {TWICE}',
    ),
    ("GET", f"{PODS}/lost/log", 404, 'pods "nowhere" not found'),
    ("GET", f"{PODS}/far/log", 500, UNREACHED),
    ("GET", f"{PODS}/far/proxy/", 400, "address not allowed"),
    ("GET", f"{PODS}/a:b:c:d/proxy/x", 400, 'invalid pod request "a:b:c:d"'),
    ("GET", f"{PODS}/ftp:web:80/proxy/x", 400, 'invalid pod request "ftp:web:80"'),
    ("GET", f"{PODS}/absent:80/proxy/x", 404, 'pods "absent" not found'),
    ("GET", f"{SERVICES}/none/proxy/x", 404, 'services "none" not found'),
    ("GET", f"{SERVICES}/a:b:c:d/proxy/x", 400, 'invalid service request "a:b:c:d"'),
    ("GET", f"{SERVICES}/kubernetes:1/proxy/x", 503, 'no service port 1 found for service "kubernetes"'),
    ("GET", f"{NODES}/distant/proxy/metrics", 400, "address not allowed"),
    ("GET", f"{NODES}/none/proxy/metrics", 404, 'nodes "none" not found'),
    ("OPTIONS", f"{NODES}/none/proxy/metrics", 404, 'nodes "none" not found'),
    ("GET", f"{NODES}/a:b:c:d/proxy/x", 400, 'invalid node request "a:b:c:d"'),
    ("DELETE", f"{PODS}/web/exec", 405, "the server does not allow this method on the requested resource"),
    ("OPTIONS", f"{PODS}/web/exec", 405, "the server does not allow this method on the requested resource"),
    ("PUT", f"{PODS}/web/log", 405, "the server does not allow this method on the requested resource"),
]


@pytest.fixture
async def api() -> AsyncIterator[InProcess]:
    """Pods that run, wait, are far away and are lost."""
    async with control_plane() as plane:
        await furnish(plane.plane)
        waiting = {"metadata": {"name": "waiting"}, "spec": {"containers": [{"name": "main", "image": "image"}]}}
        await made(plane.plane, PODS, waiting)
        await run_pod(plane.plane, "two", "first", "second")
        distant: Object = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 1}},
        }
        await made(plane.plane, NODES, {"metadata": {"name": "distant"}, "status": distant})
        await run_pod(plane.plane, "far", "main", node="distant", ip="127.0.0.1")
        await run_pod(plane.plane, "lost", "main", node="nowhere")
        yield plane


@pytest.mark.parametrize(("method", "target", "status", "message"), TABLE, ids=[f"{row[0]} {row[1]}" for row in TABLE])
async def test_an_invalid_stream_is_refused_in_kubernetes_words(
    api: InProcess, method: str, target: str, status: int, message: str
) -> None:
    reply = await api.call(method, target)
    assert (reply.status, reply.message) == (status, message)


async def test_a_pod_without_a_node_has_an_empty_log(api: InProcess) -> None:
    reply = await api.get(f"{PODS}/waiting/log")
    assert (reply.status, reply.body) == (204, b"")


async def test_a_stream_is_counted_as_a_connection(api: InProcess) -> None:
    await api.get(f"{PODS}/absent/log")
    await api.call("OPTIONS", f"{NODES}/machine/proxy/x")
    counted = (await api.get("/metrics")).body.decode()
    labels = 'scope="resource",subresource="log",verb="CONNECT",version="v1"'
    assert (
        f'apiserver_request_total{{code="404",component="apiserver",dry_run="",group="",resource="pods",{labels}}} 1'
        in counted
    )


async def test_an_unauthorized_user_is_refused_with_every_method(api: InProcess) -> None:
    without_roles = InProcess(api.plane, User("jane"))
    for method in ("GET", "OPTIONS", "POST"):
        assert (await without_roles.call(method, f"{NODES}/machine/proxy/x")).status == 403


async def test_the_log_of_a_container_that_is_named_is_shown(api: InProcess) -> None:
    stream = await api.plane.local().stream(f"{PODS}/two/log?container=second")
    assert getattr(stream, "status", 0) == 200


GET_ONLY = {"apiGroups": [""], "resources": ["pods/exec", "pods/portforward"], "verbs": ["get"]}


@pytest.mark.parametrize(("minor", "status"), [("1.34", 400), ("1.35", 403)])
async def test_a_websocket_needs_more_than_read_access_since_1_35(minor: str, status: int) -> None:
    store = MemoryStore()
    plane = await build(Settings(kubernetes_version=minor), store)
    await bootstrap(plane.foundation, plane.local(), ("127.0.0.1", 6443))
    await furnish(plane)
    group = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
    await made(plane, f"{group}/roles", {"metadata": {"name": "peek"}, "rules": [GET_ONLY]})
    binding = {
        "metadata": {"name": "peek"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "peek"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}],
    }
    await made(plane, f"{group}/rolebindings", binding)
    bob = InProcess(plane, User("bob"))
    reply = await bob.get(f"{PODS}/web/exec?command=ls&stdout=1")
    why = "Upgrade request required" if status == 400 else 'pods "web" is forbidden: '
    assert (reply.status, reply.message) == (status, why)
    reply = await bob.call("POST", f"{PODS}/web/exec?command=ls&stdout=1")
    assert reply.status == 403
    assert 'cannot create resource "pods/exec"' in orjson.loads(reply.body)["message"]
    await store.close()
