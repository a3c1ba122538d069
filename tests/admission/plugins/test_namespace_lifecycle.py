"""NamespaceLifecycle: which namespaces accept new objects, decided for one review at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from pinnace.admission.chain import AdmissionChain
from pinnace.admission.plugins.namespace_lifecycle import LASTING, NamespaceLifecycle
from pinnace.kinds import catalog
from pinnace.kinds.definitions import Definitions, minors
from pinnace.model import errors
from pinnace.model.resources import Registry
from pinnace.model.users import User
from pinnace.model.write_review import Review

REGISTRY = Registry(catalog.resources(Definitions.load(minors()[-1])))
PHASES = {"default": "Active", "going": "Terminating"}


def review(operation: str, plural: str, *, group: str = "", namespace: str = "", name: str = "a") -> Review:
    resource = REGISTRY.find(group, "v1", plural)
    assert resource is not None
    new = None if operation == "DELETE" else {"metadata": {"name": name}}
    old = None if operation == "CREATE" else {"metadata": {"name": name}}
    return Review(operation, resource, "", namespace, name, new, old, User("joe"))


GATE = AdmissionChain([NamespaceLifecycle(PHASES.get)])


@pytest.mark.parametrize(
    "allowed",
    [
        review("CREATE", "pods", namespace="default"),
        review("UPDATE", "pods", namespace="going"),
        review("DELETE", "pods", namespace="going"),
        review("CREATE", "nodes"),
        review("CREATE", "namespaces", name="new"),
        review("DELETE", "namespaces", name="mine"),
        review("UPDATE", "namespaces", name="default"),
        review("CREATE", "localsubjectaccessreviews", group="authorization.k8s.io", namespace="nowhere"),
    ],
    ids=lambda allowed: f"{allowed.operation} {allowed.resource.plural} in {allowed.namespace or 'the cluster'}",
)
async def test_allowed_requests_pass(allowed: Review) -> None:
    assert GATE.mutate(allowed) is None


async def test_a_namespace_that_is_not_there_is_not_found() -> None:
    with pytest.raises(errors.NotFound, match='namespaces "nowhere" not found'):
        GATE.mutate(review("CREATE", "pods", namespace="nowhere"))


async def test_a_namespace_that_goes_takes_nothing_new() -> None:
    with pytest.raises(errors.Forbidden, match="because it is being terminated") as refused:
        GATE.mutate(review("CREATE", "deployments", group="apps", namespace="going"))
    assert refused.value.details["causes"][0]["reason"] == "NamespaceTerminating"
    assert refused.value.details["group"] == "apps"


@pytest.mark.parametrize("name", sorted(LASTING))
async def test_the_first_namespaces_may_not_be_deleted(name: str) -> None:
    with pytest.raises(errors.Forbidden, match="this namespace may not be deleted"):
        GATE.mutate(review("DELETE", "namespaces", name=name))


class Step:
    """A gate that writes down that it was passed, at once or after a while."""

    def __init__(self, name: str, passed: list[str], *, takes_time: bool, refuses: bool = False) -> None:
        self._name, self._passed, self._takes_time, self._refuses = name, passed, takes_time, refuses

    def mutate(self, review: Review) -> Awaitable[None] | None:
        if self._takes_time:
            return self._pass_later()
        self._pass()
        return None

    validate = mutate

    async def _pass_later(self) -> None:
        await asyncio.sleep(0)
        self._pass()

    def _pass(self) -> None:
        self._passed.append(self._name)
        if self._refuses:
            raise errors.Forbidden("no")


@pytest.mark.parametrize("slow", [(), ("first",), ("second", "fourth"), ("third",)], ids=repr)
async def test_plugins_are_passed_in_order_until_one_refuses(slow: tuple[str, ...]) -> None:
    passed: list[str] = []

    def step(name: str, *, refuses: bool = False) -> Step:
        return Step(name, passed, takes_time=name in slow, refuses=refuses)

    chain = AdmissionChain(
        [step("first"), step("second")], [step("third"), step("fourth", refuses=True), step("fifth")]
    )
    request = review("CREATE", "pods", namespace="default")
    if (waiting := chain.mutate(request)) is not None:
        await waiting
    with pytest.raises(errors.Forbidden):
        await (chain.validate(request) or asyncio.sleep(0))
    assert passed == ["first", "second", "third", "fourth"]
