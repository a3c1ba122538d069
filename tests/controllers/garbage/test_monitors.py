"""Which discovery pages are read when kinds come and go."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import pytest
from tests.controllers.world import WIDGET, World

from pinnace.client.client import Client
from pinnace.client.mapping import kind_from
from pinnace.client.transport import Answer, Stream, Transport
from pinnace.cluster.control_plane import SYSTEM
from pinnace.controllers.garbage.discovery import Discovery
from pinnace.controllers.garbage.monitors import LAST_EVENTS_SECONDS, Monitors
from pinnace.model.objects import Kind
from pinnace.reconcile.manager import Manager
from pinnace.testing.clock import ManualClock

WIDGETS = "widgets.example.com"
DEFINITION = "apiextensions.k8s.io/v1/CustomResourceDefinition"


class Counted:
    """Remembers which pages were asked for."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.requests: list[str] = []
        self.broken: frozenset[str] = frozenset()

    async def request(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        self.requests.append(target)
        if target in self.broken:
            return Answer(500, {}, b"no server")  # Not one of those that are tried again at once.
        return await self.inner.request(method, target, body, headers)

    async def stream(self, target: str, headers: Mapping[str, str], *, silence: float) -> Stream | Answer:
        return await self.inner.stream(target, headers, silence=silence)

    async def close(self) -> None: ...


@pytest.fixture
def counted(world: World) -> Counted:
    return Counted(world.transport_of(SYSTEM))


@pytest.fixture
async def watched(world: World, counted: Counted) -> AsyncIterator[tuple[Manager, Monitors]]:
    manager = Manager(Client(counted, clock=world.client.clock))
    monitors = Monitors(manager)
    manager.add(monitors.controller)
    async with manager.running():
        await manager.settle()
        yield manager, monitors


def pages(counted: Counted) -> list[str]:
    """The discovery pages that were asked for by the monitors, not those by which the client finds its way."""
    result, counted.requests[:] = list(counted.requests), []
    return [page for page in result if page.count("/") <= 3 and "?" not in page]


async def test_everything_is_read_once_at_the_start(watched: tuple[Manager, Monitors], counted: Counted) -> None:
    read = pages(counted)
    assert read.count("/apis") == 1
    assert read.count("/apis/storage.k8s.io") == 0
    assert watched[1].informer(Kind("apps", "v1", "Deployment")) is not None


async def test_a_new_kind_makes_only_its_group_read(
    world: World, watched: tuple[Manager, Monitors], counted: Counted, clock: ManualClock
) -> None:
    manager, monitors = watched
    pages(counted)
    await world.define_widgets()
    await manager.settle()
    assert set(pages(counted)) == {"/apis/example.com", "/apis/example.com/v1"}
    assert monitors.informer(kind_from(WIDGET)) is not None
    await world.client.delete(DEFINITION, WIDGETS)

    async def is_gone() -> bool:
        return await world.client.get_or_none(DEFINITION, WIDGETS) is None

    await world.until(is_gone)  # The server itself ends the deletion of a definition.
    await manager.settle()
    assert monitors.informer(kind_from(WIDGET)) is not None, "its last objects may still be reported as deleted"
    await clock.advance(LAST_EVENTS_SECONDS)
    await manager.settle()
    assert monitors.informer(kind_from(WIDGET)) is None
    assert set(pages(counted)) <= {"/apis/example.com", "/apis/example.com/v1"}
    assert monitors.informer(Kind("apps", "v1", "Deployment")) is not None


async def test_a_group_that_could_not_be_read_is_asked_for_again_alone(
    world: World, watched: tuple[Manager, Monitors], counted: Counted, clock: ManualClock
) -> None:
    manager, monitors = watched
    counted.broken = frozenset({"/apis/example.com/v1"})
    await world.define_widgets()
    await manager.settle()
    assert monitors.informer(kind_from(WIDGET)) is None
    counted.broken = frozenset()
    pages(counted)
    await clock.advance(60)
    await manager.settle()
    assert "/apis" not in pages(counted)
    assert monitors.informer(kind_from(WIDGET)) is not None


async def test_an_object_comes_once_after_its_group_is_read_again(world: World) -> None:
    discovery = Discovery(world.client)
    before = await discovery.reread()
    after = await discovery.reread("networking.k8s.io")
    assert {served.kind for served in after.kinds} == {served.kind for served in before.kinds}
    assert sum(served.kind.name == "Ingress" for served in after.kinds) == 1
