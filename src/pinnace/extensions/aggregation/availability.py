"""Keeps the Available condition of APIServices: asks each server behind one on every change, and every 30 seconds."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from pinnace.client.client import Client
from pinnace.extensions.aggregation.backend_table import API_SERVICE, AVAILABLE, ApiServices
from pinnace.extensions.aggregation.backends import CheckFailed, HttpBackend
from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.process.clock import AlarmClock, to_rfc3339
from pinnace.reconcile.conditions import condition

log = logging.getLogger(__name__)

AGAIN_SECONDS = 30.0
FIRST_RETRY_SECONDS = 1.0
_REFUSED_SECONDS = 1.0
_MANY = 10


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check."""

    reason: str
    message: str

    @property
    def is_passed(self) -> bool:
        return self.reason == "Passed"


PASSED = CheckResult("Passed", "all checks passed")


class Services(Protocol):
    """The services of the cluster and their endpoints."""

    def service(self, namespace: str, name: str) -> Object | None: ...

    def slices(self, namespace: str, name: str) -> Sequence[Object]:
        """Return the EndpointSlices of a service. An Endpoints object without slices is returned in their form."""


class Availability:
    """One task for each backend, so that one that hangs keeps no other waiting."""

    def __init__(self, client: Client, api_services: ApiServices, services: Services, *, clock: AlarmClock) -> None:
        self._client = client
        self._api_services = api_services
        self._services = services
        self._clock = clock
        self._woken: dict[str, asyncio.Event] = {}
        self.failures: Counter[tuple[str, str]] = Counter()
        """How often each APIService has become unavailable, by name and reason."""
        self._tasks: asyncio.TaskGroup | None = None

    def wake(self, name: str) -> None:
        """Something about this APIService, or the service it leads to, has changed."""
        if name in self._woken:
            self._woken[name].set()
        elif self._tasks is not None and self._api_services.backend(name) is not None:
            self._woken[name] = asyncio.Event()
            self._tasks.create_task(self._follow(name, self._woken[name]))

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            for backend in list(self._api_services.backends()):
                self.wake(backend.name)
            await asyncio.get_running_loop().create_future()

    async def _follow(self, name: str, woken: asyncio.Event) -> None:
        failures = 0
        while (backend := self._api_services.backend(name)) is not None:
            woken.clear()
            pause = min(AGAIN_SECONDS, FIRST_RETRY_SECONDS * 2**failures)
            try:
                finding = await self._check(backend)
                failures = 0 if finding.is_passed else min(failures + 1, _MANY)
                pause = AGAIN_SECONDS if finding.is_passed else pause
                await self._tell(name, backend, finding)
                if finding.is_passed:
                    await backend.look_for_openapi()
            except errors.Conflict:
                continue
            except errors.ApiError as error:
                log.warning("%s: %s; trying again", name, error.message)
                pause = _REFUSED_SECONDS
            except Exception:  # The other APIServices must be checked all the same.
                log.exception("%s could not be checked; trying again", name)
            alarm = self._clock.call_later(pause, woken.set)
            try:
                await woken.wait()
            finally:
                alarm.cancel()
        del self._woken[name]

    async def _check(self, backend: HttpBackend) -> CheckResult:
        namespace, name, _ = backend.service
        service = self._services.service(namespace, name)
        wrong = error_of_service(backend.service, service, self._services.slices(namespace, name))
        if wrong is not None:
            return wrong
        try:
            self._api_services.learnt(backend, await backend.check())
        except CheckFailed as failed:
            return CheckResult("FailedDiscoveryCheck", str(failed))
        return PASSED

    async def _tell(self, name: str, backend: HttpBackend, finding: CheckResult) -> None:
        obj = await self._client.get_or_none(API_SERVICE, name)
        if obj is None or obj["spec"] != backend.spec:
            return  # It has changed since, which wakes us.
        wanted = {
            "type": AVAILABLE,
            "status": "True" if finding.is_passed else "False",
            "reason": finding.reason,
            "message": finding.message,
        }
        present = condition(obj, AVAILABLE) or {}
        if all(present.get(field) == value for field, value in wanted.items()):
            return
        is_same = present.get("status") == wanted["status"]
        if not finding.is_passed and (not is_same or present.get("reason") != finding.reason):
            self.failures[name, finding.reason] += 1
        moment = present.get("lastTransitionTime") if is_same else to_rfc3339(self._clock.now())
        others = [
            entry for entry in (obj.get("status") or {}).get("conditions") or () if entry.get("type") != AVAILABLE
        ]
        patch = {
            "metadata": {"resourceVersion": obj["metadata"]["resourceVersion"]},
            "status": {"conditions": [*others, {**wanted, "lastTransitionTime": moment}]},
        }
        await self._client.patch(API_SERVICE, name, patch, subresource="status")


def error_of_service(
    place: tuple[str, str, int], service: Object | None, slices: Sequence[Object]
) -> CheckResult | None:
    """Return why the Service cannot have an endpoint, without calling the server; None if it may have one."""
    namespace, name, port = place
    if service is None:
        return CheckResult("ServiceNotFound", f'service/{name} in "{namespace}" is not present')
    spec = service.get("spec") or {}
    if spec.get("type", "ClusterIP") != "ClusterIP":
        return None
    service_port = next((entry for entry in spec.get("ports") or () if entry.get("port") == port), None)
    if service_port is None:
        return CheckResult("ServicePortError", f'service/{name} in "{namespace}" is not listening on port {port}')
    if not slices:
        return CheckResult("EndpointsNotFound", f'cannot find endpointslices for service/{name} in "{namespace}"')
    port_name = service_port.get("name") or ""
    if not any(_has_ready_endpoint(slice_, port_name) for slice_ in slices):
        return CheckResult(
            "MissingEndpoints",
            f'endpointslices for service/{name} in "{namespace}" have no addresses with port name "{port_name}"',
        )
    return None


def _has_ready_endpoint(slice_: Object, port_name: str) -> bool:
    is_ready = any(
        (endpoint.get("conditions") or {}).get("ready") is not False for endpoint in slice_.get("endpoints") or ()
    )
    named = (port for port in slice_.get("ports") or () if (port.get("name") or "") == port_name)
    return is_ready and any(entry.get("port") for entry in named)


AUTOMANAGED = "kube-aggregator.kubernetes.io/automanaged"
GROUP_PRIORITY, VERSION_PRIORITY = 1000, 100
RETRY_SECONDS = 0.5

Place = tuple[str, str]
"""A group and a version."""


class AutoRegistration:
    """Follows definitions. An APIService that a user created for the same group and version is left alone."""

    def __init__(self, is_built_in: Callable[[Place], bool]) -> None:
        """`is_built_in` tells whether the server itself serves a group and version: its APIServices are not custom."""
        self._is_built_in = is_built_in
        self._places_of: dict[str, frozenset[Place]] = {}
        self._definitions_at: dict[Place, set[str]] = {}
        self._waiting: dict[Place, None] = {}
        self._woken = asyncio.Event()

    def put(self, definition: Object) -> None:
        """Follow a definition that is new or has changed."""
        spec = definition["spec"]
        served = (entry["name"] for entry in spec.get("versions") or () if entry.get("served"))
        self._move(definition["metadata"]["name"], frozenset((spec["group"], version) for version in served))

    def drop(self, name: str) -> None:
        self._move(name, frozenset())

    async def run(self, client: Client) -> None:
        """Make and remove APIServices until cancelled."""
        for present in await client.list(API_SERVICE, labels=f"{AUTOMANAGED}=true"):
            self.check(present)
        while True:
            await self._woken.wait()
            self._woken.clear()
            while self._waiting:
                place = next(iter(self._waiting))
                del self._waiting[place]
                try:
                    await self._register(client, place)
                except (errors.Conflict, errors.AlreadyExists):
                    self.wake(place)
                except errors.ApiError as error:
                    log.warning("%s.%s: %s; trying again", place[1], place[0], error.message)
                    client.clock.call_later(RETRY_SECONDS, partial(self.wake, place))

    def check(self, api_service: Object) -> None:
        """Compare an APIService with its definitions soon, if it is labelled: a user may have changed or made it."""
        metadata = api_service["metadata"]
        if (metadata.get("labels") or {}).get(AUTOMANAGED) != "true":
            return
        # The name is valid whatever the spec of an APIService that a user has labelled says.
        version, _, group = metadata["name"].partition(".")
        if not self._is_built_in((group, version)):
            self.wake((group, version))

    async def _register(self, client: Client, place: Place) -> None:
        wanted = api_service_of(place) if self._definitions_at.get(place) else None
        name = f"{place[1]}.{place[0]}"
        present = await client.get_or_none(API_SERVICE, name)
        if present is None:
            if wanted is not None:
                await client.create(wanted)
            return
        if (present["metadata"].get("labels") or {}).get(AUTOMANAGED) != "true":
            return
        if wanted is None:
            await client.delete(API_SERVICE, name)
        elif present["spec"] != wanted["spec"]:
            await client.update({**present, "spec": wanted["spec"]})

    def _move(self, name: str, places: frozenset[Place]) -> None:
        before = self._places_of.pop(name, frozenset())
        if places:
            self._places_of[name] = places
        for place in before - places:
            others = self._definitions_at[place]
            others.discard(name)
            if not others:
                del self._definitions_at[place]
                self.wake(place)
        for place in places - before:
            others = self._definitions_at.setdefault(place, set())
            if not others:
                self.wake(place)
            others.add(name)

    def wake(self, place: Place) -> None:
        """Compare the APIService of this group and version with its definitions soon."""
        self._waiting[place] = None
        self._woken.set()


def api_service_of(place: Place) -> Object:
    """Return the local APIService of a custom group and version, ranked after the built-in ones."""
    group, version = place
    return {
        "apiVersion": API_SERVICE.api_version,
        "kind": API_SERVICE.name,
        "metadata": {"name": f"{version}.{group}", "labels": {AUTOMANAGED: "true"}},
        "spec": {
            "group": group,
            "version": version,
            "groupPriorityMinimum": GROUP_PRIORITY,
            "versionPriority": VERSION_PRIORITY,
        },
    }
