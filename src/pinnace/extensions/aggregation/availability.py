"""Keeps the Available condition of APIServices: asks each server behind one on every change, and every 30 seconds."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pinnace.client.client import Client
from pinnace.extensions.aggregation.backend_table import API_SERVICE, AVAILABLE, ApiServices
from pinnace.extensions.aggregation.backends import CheckFailed, HttpBackend
from pinnace.model import errors
from pinnace.model.clock import AlarmClock, to_rfc3339
from pinnace.model.objects import Object
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
        """Its EndpointSlices; of a service that has an Endpoints object only, that as slices."""


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
        others = [one for one in (obj.get("status") or {}).get("conditions") or () if one.get("type") != AVAILABLE]
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
    asked = next((one for one in spec.get("ports") or () if one.get("port") == port), None)
    if asked is None:
        return CheckResult("ServicePortError", f'service/{name} in "{namespace}" is not listening on port {port}')
    if not slices:
        return CheckResult("EndpointsNotFound", f'cannot find endpointslices for service/{name} in "{namespace}"')
    port_name = asked.get("name") or ""
    if not any(_has_ready_endpoint(one, port_name) for one in slices):
        return CheckResult(
            "MissingEndpoints",
            f'endpointslices for service/{name} in "{namespace}" have no addresses with port name "{port_name}"',
        )
    return None


def _has_ready_endpoint(slice_: Object, port_name: str) -> bool:
    is_ready = any((one.get("conditions") or {}).get("ready") is not False for one in slice_.get("endpoints") or ())
    named = (one for one in slice_.get("ports") or () if (one.get("name") or "") == port_name)
    return is_ready and any(one.get("port") for one in named)
