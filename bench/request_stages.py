"""Prints what authorization, flow control, deadlines and a mutating webhook add to the cost of a request."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import uvloop
from aiohttp import web

from pinnace.auth.authorization.rbac import Rbac
from pinnace.auth.certificates.authority import issue, new_ca
from pinnace.auth.sources import FixedObjects
from pinnace.cluster.control_plane import build
from pinnace.cluster.settings import Settings
from pinnace.model.authorization import Action
from pinnace.model.users import User
from pinnace.server.bootstrap.creation import bootstrap
from pinnace.server.flowcontrol.flow_control import FlowControl, Turn
from pinnace.serving.deadlines import Deadlines
from pinnace.serving.messages import Response
from pinnace.store.memory import MemoryStore

BINDINGS = 1_000
ROUNDS = 60
TIMES = 2_000
BATCHES, CREATES = 20, 40
RBAC = "rbac.authorization.k8s.io"
BOB = User("bob", ("devs", "system:authenticated"))
GET = Action("get", resource="pods", namespace="team-500", name="web", version="v1")

Object = dict[str, Any]


def report(name: str, figure: float, unit: str, bound: float | None = None) -> None:
    limit = "" if bound is None else f"   to stay under {bound:g}"
    print(f"{name:64} {figure:9.2f} {unit}{limit}", flush=True)


def best(work: Callable[[], object]) -> float:
    """Microseconds of one call: the least of many rounds, since a busy machine only ever adds."""
    least = float("inf")
    for _ in range(ROUNDS):
        started = time.perf_counter()
        for _ in range(TIMES):
            work()
        least = min(least, time.perf_counter() - started)
    return least / TIMES * 1e6


# Authorization.


def _role(name: str, resource: str) -> Object:
    rule = {"apiGroups": [""], "resources": [resource], "verbs": ["get"]}
    return {"metadata": {"name": name}, "rules": [rule]}


def _binding(name: str, role: str, subject: Object, namespace: str = "") -> Object:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": role}
    return {"metadata": metadata, "roleRef": reference, "subjects": [{"apiGroup": RBAC, **subject}]}


def measure_rbac() -> None:
    devs = {"kind": "Group", "name": "devs"}
    numbers = range(BINDINGS)
    one_role = FixedObjects(_role("reader", "pods"))
    many_roles = FixedObjects(*(_role(f"role-{number}", f"things{number}") for number in numbers))
    in_namespaces = FixedObjects(*(_binding("readers", "reader", devs, f"team-{number}") for number in numbers))
    of_others = FixedObjects(
        *(_binding("readers", "reader", {"kind": "User", "name": f"u{number}"}, f"team-{number}") for number in numbers)
    )
    everywhere = FixedObjects(*(_binding(f"all-{number}", f"role-{number}", devs) for number in numbers))
    nothing = FixedObjects()
    cases = {
        "his, in a namespace each": (one_role, in_namespaces, nothing),
        "of others": (one_role, of_others, nothing),
        "his, everywhere, none of them enough": (many_roles, nothing, everywhere),
    }
    # More users than are remembered, one after another: each is asked about for the first time again.
    strangers = itertools.cycle([User(f"bob-{number}", BOB.groups) for number in range(20_000)])
    for name, (roles, bindings, cluster_bindings) in cases.items():
        rbac = Rbac(roles=nothing, cluster_roles=roles, bindings=bindings, cluster_bindings=cluster_bindings)
        report(f"RBAC, {BINDINGS} bindings, {name}: known", best(partial(rbac.decide, BOB, GET)), "µs", 3)
        report(f"RBAC, {BINDINGS} bindings, {name}: new", best(partial(_decide_for_next, rbac, strangers)), "µs", 20)


def _decide_for_next(roles: Rbac, users: Iterator[User]) -> None:
    roles.decide(next(users), GET)


# Whose turn it is, and by when.


def flow_control() -> FlowControl:
    anything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
    rule = {"subjects": [{"kind": "Group", "group": {"name": "*"}}], "resourceRules": [anything]}
    spec = {
        "priorityLevelConfiguration": {"name": "all"},
        "matchingPrecedence": 1,
        "distinguisherMethod": {"type": "ByUser"},
        "rules": [rule],
    }
    limited = {"nominalConcurrencyShares": 10, "limitResponse": {"type": "Queue", "queuing": {}}}
    levels = FixedObjects({"metadata": {"name": "all", "uid": "a"}, "spec": {"type": "Limited", "limited": limited}})
    return FlowControl(FixedObjects({"metadata": {"name": "all", "uid": "b"}, "spec": spec}), levels)


async def measure_turns() -> None:
    flows, answer = flow_control(), Response(200, b"Audit-Id: a\r\n", b"{}")

    def at_once() -> None:
        turn = flows.turn_at_once(BOB, GET, needs_seat=False)
        assert turn is not None
        turn.mark(answer)
        turn.end()

    def seated() -> None:
        turn = drained(flows.take_turn(BOB, GET))
        turn.mark(answer)
        turn.end()

    def drained(pending: Coroutine[None, None, Turn]) -> Turn:
        try:
            pending.send(None)
        except StopIteration as done:
            return cast(Turn, done.value)
        raise AssertionError("nothing is contended")

    report("fair turns, not contended, answered at once", best(at_once), "µs", 2)
    report("fair turns, not contended, answered later", best(seated), "µs", 2)
    deadlines = Deadlines()
    report("request timeout", best(lambda: deadlines.end(deadlines.begin(None))), "µs", 2)


# A webhook that changes a write.


async def serve_webhook(directory: Path) -> None:
    """A server in a process of its own, which adds a label to everything."""
    ca = new_ca()
    pair = issue(ca, common_name="127.0.0.1", server_names=["127.0.0.1"])
    certificate, key = directory / "tls.crt", directory / "tls.key"
    certificate.write_bytes(pair.certificate_pem)
    key.write_bytes(pair.key_pem)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    patch = base64.b64encode(json.dumps([{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]).encode())

    async def review(request: web.BaseRequest) -> web.Response:
        review_request = (await request.json())["request"]
        response = {"uid": review_request["uid"], "allowed": True, "patchType": "JSONPatch", "patch": patch.decode()}
        return web.json_response({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})

    runner = web.ServerRunner(web.Server(review))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    bundle = base64.b64encode(ca.certificate_pem).decode()
    print(json.dumps({"url": f"https://127.0.0.1:{runner.addresses[0][1]}/", "caBundle": bundle}), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await runner.cleanup()


async def measure_webhook() -> None:
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, __file__, "webhook", directory]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdin is not None and child.stdout is not None
            plain, hooked = await creates(json.loads(child.stdout.readline()))
            child.stdin.close()
    report("create of a ConfigMap, p50", plain, "ms")
    report("a mutating webhook on loopback adds, p50", hooked - plain, "ms", 1.5)


async def creates(client_config: Object) -> tuple[float, float]:
    """Milliseconds of a create, the median: without a webhook, and with one, one of each in turn.

    The least median of many batches, since a busy machine only ever adds.
    """
    store = MemoryStore()
    plane = await build(Settings(), store)
    await bootstrap(plane.foundation, plane.local(), ("127.0.0.1", 6443))
    local = plane.local()
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    hook = {
        "name": "label.example.com",
        "clientConfig": client_config,
        "rules": [rule],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    hooks = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    await local.request("POST", hooks, json.dumps({"metadata": {"name": "a"}, "webhooks": [hook]}).encode(), _JSON)

    async def create(namespace: str, number: int) -> float:
        body = json.dumps({"metadata": {"name": f"c{number}"}, "data": {"key": "value" * 20}}).encode()
        started = time.perf_counter()
        answer = await local.request("POST", f"/api/v1/namespaces/{namespace}/configmaps", body, _JSON)
        assert answer.status == 201, answer
        return (time.perf_counter() - started) * 1e3

    medians: dict[str, list[float]] = {"kube-public": [], "default": []}
    for batch in range(BATCHES):
        times: dict[str, list[float]] = {namespace: [] for namespace in medians}
        for number in range(batch * CREATES, (batch + 1) * CREATES):
            for namespace, measured in times.items():
                measured.append(await create(namespace, number))
        for namespace, measured in times.items():
            medians[namespace].append(statistics.median(measured))
    await plane.webhooks.close()
    await store.close()
    return min(medians["kube-public"]), min(medians["default"])


_JSON = {"content-type": "application/json"}


async def measure() -> None:
    measure_rbac()
    await measure_turns()
    await measure_webhook()


def main() -> None:
    if len(sys.argv) > 2 and sys.argv[1] == "webhook":
        uvloop.run(serve_webhook(Path(sys.argv[2])))
    else:
        uvloop.run(measure())


if __name__ == "__main__":
    main()
