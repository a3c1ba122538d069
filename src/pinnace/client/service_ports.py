"""Connections to a Service through the API server: each goes to one of the pods that are ready at that moment."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import NamedTuple
from urllib.parse import quote

from pinnace.client.transport import ConnectionLost, Socket
from pinnace.model import errors
from pinnace.model.objects import Object

_SERVICE_NAME = "kubernetes.io/service-name"


class PodPort(NamedTuple):
    namespace: str
    pod: str
    port: int


class NoReadyPod(ConnectionLost):
    """No pod of the Service is ready, or none could be reached."""

    def __init__(self, service: str, reason: str) -> None:
        super().__init__(f"no pod of service {service} accepts connections: {reason}", was_sent=False)


class ServicePort:
    """Opens connections to one port of a Service."""

    def __init__(
        self,
        namespace: str,
        service: str,
        port: int | str,
        *,
        fetch: Callable[[str], Awaitable[Object]],
        connect: Callable[[PodPort], Awaitable[Socket]],
    ) -> None:
        """`port` is a number or a name. `fetch` reads a path of the API."""
        self._namespace = namespace
        self._service = service
        self._port = port
        self._fetch = fetch
        self._connect = connect

    async def open(self) -> Socket:
        """Connect to a ready pod, chosen at random; to another if its node refuses. Raise NoReadyPod."""
        pods = await self.pods()
        reason = "none is ready"
        for pod in random.sample(pods, len(pods)):
            try:
                return await self._connect(pod)
            except (errors.ApiError, ConnectionLost) as error:  # It may have been deleted since.
                reason = str(error)
        raise NoReadyPod(self._service, reason)

    async def pods(self) -> list[PodPort]:
        """Return the ready pods. Raise LookupError if the Service has no such port."""
        namespace, name = quote(self._namespace, safe=""), quote(self._service, safe="")
        service = await self._fetch(f"/api/v1/namespaces/{namespace}/services/{name}")
        selector = quote(f"{_SERVICE_NAME}={self._service}")
        slices = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?labelSelector={selector}"
        return list(ready_pods(service, (await self._fetch(slices))["items"], self._port))


def ready_pods(service: Object, slices: Sequence[Object], port: int | str) -> Iterator[PodPort]:
    """Yield the ready pods behind a port of a Service. Raise LookupError if the Service has no such port."""
    names = [
        one.get("name", "")
        for one in (service.get("spec") or {}).get("ports") or ()
        if str(port) in (str(one["port"]), one.get("name"))
    ]
    if not names:
        raise LookupError(f"service {service['metadata']['name']} has no port {port}")
    for one in slices:
        numbers = [part["port"] for part in one.get("ports") or () if (part.get("name") or "") == names[0]]
        for endpoint in one.get("endpoints") or ():
            target = endpoint.get("targetRef") or {}
            if numbers and target.get("kind") == "Pod" and (endpoint.get("conditions") or {}).get("ready") is not False:
                yield PodPort(target.get("namespace", ""), target["name"], numbers[0])
