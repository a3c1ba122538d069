"""Parsed request targets are kept as long as they are valid."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.server.in_process import CONFIG_MAPS, InProcess

from pinnace.model.resources import Registry
from pinnace.model.users import User
from pinnace.server.local import NoTransport
from pinnace.server.targets import Routes
from pinnace.serving.messages import Peer, Request, RequestHead
from pinnace.serving.request.call import Call, parse_call

BOB = User("bob")


def request(target: str, method: str = "GET") -> Request:
    path, _, query = target.partition("?")
    return Request(method, target, path, query, RequestHead({}), b"", Peer(NoTransport()))


def usable_selectors(wanted: Request, registry: Registry) -> Call:
    call = parse_call(wanted, wanted.path.split("/")[1:], registry, BOB)
    assert call is not None
    return call


@pytest.fixture
def registry(api: InProcess) -> Registry:
    return Registry(api.plane.registry)


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", CONFIG_MAPS),
        ("GET", f"{CONFIG_MAPS}/one"),
        ("GET", f"{CONFIG_MAPS}?watch=true&fieldSelector=metadata.name%3Done"),
        ("GET", "/api/v1/namespaces/default"),
        ("GET", "/api/v1/watch/pods"),
        ("POST", "/api/v1/namespaces/default/pods/one/eviction"),
        ("PATCH", "/apis/apps/v1/namespaces/default/deployments/one/scale"),
        ("DELETE", CONFIG_MAPS),
        ("GET", "/api/v1/namespaces/default/services/one/proxy/some/where"),
    ],
)
def test_a_call_that_is_remembered_is_the_same_as_the_one_that_was_understood(
    registry: Registry, method: str, target: str
) -> None:
    routes = Routes(registry)
    first = request(target, method)
    assert routes.find(first) is None
    call = usable_selectors(first, registry)
    routes.learn(call)
    assert routes.find(first) is None, "a target that is requested once is not kept"
    learnt = routes.learn(call)
    again = request(target, method)
    route = routes.find(again)
    assert route == learnt
    known = Call(*route[0], again, BOB)
    parts = ("verb", "resource", "namespace", "name", "subresource", "tail", "user")
    assert [getattr(known, part) for part in parts] == [getattr(call, part) for part in parts]
    assert known.request is again
    assert known.warnings == []


def test_nothing_is_remembered_of_what_was_served_before(registry: Registry) -> None:
    routes, wanted = Routes(registry), request(CONFIG_MAPS)
    call = usable_selectors(wanted, registry)
    routes.learn(call)
    routes.learn(call)
    assert routes.find(wanted) is not None
    other = replace(call.resource, singular="other")
    registry.add(other)
    assert routes.find(wanted) is None
    assert routes.learn(usable_selectors(wanted, registry))[0][1] is other
    registry.remove(other)
    assert routes.find(wanted) is None


def test_another_method_or_query_is_another_target(registry: Registry) -> None:
    routes = Routes(registry)
    for _ in range(2):
        routes.learn(usable_selectors(request(CONFIG_MAPS), registry))
    assert routes.find(request(CONFIG_MAPS)) is not None
    assert routes.find(request(CONFIG_MAPS, "DELETE")) is None
    assert routes.find(request(f"{CONFIG_MAPS}?watch=1")) is None


def test_neither_many_targets_nor_long_ones_take_memory_without_end(registry: Registry) -> None:
    routes, base = Routes(registry), usable_selectors(request(CONFIG_MAPS), registry)
    targets = [f"{CONFIG_MAPS}/{number}" for number in range(9000)]
    for target in [*targets, f"{CONFIG_MAPS}?labelSelector={'x' * 5000}"]:
        base.request = request(target)
        routes.learn(base)
        routes.learn(base)
    assert routes.find(base.request) is None
    assert routes.find(request(targets[-1])) is not None
    assert sum(routes.find(request(target)) is not None for target in targets) <= 4096
    long = [f"{CONFIG_MAPS}/{number:0450}" for number in range(2000)]
    for target in long:
        base.request = request(target)
        routes.learn(base)
        routes.learn(base)
    assert sum(routes.find(request(target)) is not None for target in long) <= 900
