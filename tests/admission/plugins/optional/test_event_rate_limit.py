"""Events are limited in all, of a namespace, of a user, and about an object."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.admission.plugins.optional.running import NAMESPACES, configure, running
from tests.server.in_process import InProcess, Object

from pinnace.model.users import User
from pinnace.testing.clock import ManualClock

EVENTS = f"{NAMESPACES}/default/events"


def limits(*limits: Object) -> Object:
    group = "eventratelimit.admission.k8s.io/v1alpha1"
    return {"apiVersion": group, "kind": "Configuration", "limits": list(limits)}


def event(name: str, *, about: str = "a", namespace: str = "default") -> Object:
    metadata = {"name": name, "namespace": namespace}
    involved = {"kind": "Pod", "name": about, "namespace": namespace, "uid": "7"}
    return {"metadata": metadata, "involvedObject": involved, "source": {"component": "test"}}


async def test_the_allowance_of_the_server_grows_with_the_time(tmp_path: Path) -> None:
    clock = ManualClock()
    file = configure(tmp_path, "EventRateLimit", limits({"type": "Server", "qps": 2, "burst": 3}))
    async with running("EventRateLimit", configuration=file, clock=clock) as server:
        codes = [(await server.post(EVENTS, event(f"e{number}"))).status for number in range(4)]
        assert codes == [201, 201, 201, 429]
        refused = await server.post(EVENTS, event("f"))
        assert refused.message == "Too many requests: limit reached on type Server for key "
        assert refused.json["reason"] == "TooManyRequests"
        assert (await server.post(f"{EVENTS}?dryRun=All", event("dry"))).status == 201
        assert (await server.post("/api/v1/namespaces", {"metadata": {"name": "more"}})).status == 201
        await clock.advance(1)
        codes = [(await server.post(EVENTS, event(f"g{number}"))).status for number in range(3)]
        assert codes == [201, 201, 429]


@pytest.mark.parametrize(
    ("type", "key"), [("Namespace", "default"), ("User", "ada"), ("SourceAndObject", "testPoddefaulta7")]
)
async def test_each_key_has_an_allowance_of_its_own(tmp_path: Path, type: str, key: str) -> None:
    file = configure(tmp_path, "EventRateLimit", limits({"type": type, "qps": 1, "burst": 1}))
    async with running("EventRateLimit", configuration=file) as server:
        await server.made(NAMESPACES, {"metadata": {"name": "other"}})
        ada, bob = (InProcess(server.plane, User(name, ("system:masters",))) for name in ("ada", "bob"))
        assert (await ada.post(EVENTS, event("a"))).status == 201
        refused = await ada.post(EVENTS, event("b"))
        assert refused.message == f"Too many requests: limit reached on type {type} for key {key}"
        others = {
            "Namespace": (ada, "other", "a"), "User": (bob, "default", "a"), "SourceAndObject": (ada, "default", "b"),
        }  # fmt: skip
        client, namespace, about = others[type]
        body = event("c", about=about, namespace=namespace)
        assert (await client.post(f"{NAMESPACES}/{namespace}/events", body)).status == 201


async def test_a_key_that_is_forgotten_begins_with_a_full_allowance(tmp_path: Path) -> None:
    few = {"type": "SourceAndObject", "qps": 1, "burst": 1, "cacheSize": 1}
    file = configure(tmp_path, "EventRateLimit", limits(few))
    async with running("EventRateLimit", configuration=file) as server:
        codes = [
            (await server.post(EVENTS, event(f"{about}{n}", about=about))).status for n, about in enumerate("abab")
        ]
        assert codes == [201, 201, 201, 201]


async def test_all_limits_that_are_reached_are_named(tmp_path: Path) -> None:
    file = configure(
        tmp_path,
        "EventRateLimit",
        limits({"type": "Server", "qps": 1, "burst": 1}, {"type": "Namespace", "qps": 1, "burst": 1}),
    )
    async with running("EventRateLimit", configuration=file) as server:
        assert (await server.post(EVENTS, event("a"))).status == 201
        assert (await server.post(EVENTS, event("b"))).message == (
            "Too many requests: [limit reached on type Server for key , "
            "limit reached on type Namespace for key default]"
        )
