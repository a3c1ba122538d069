"""The service addresses of a cluster as the objects ServiceCIDR and IPAddress."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from ipaddress import ip_network

import orjson

from pinnace.kinds.networking.address_objects import ADDRESSES, address_object
from pinnace.model.errors import error_of_status
from pinnace.model.objects import AnyObject, Kind, Object
from pinnace.model.resources import Registry
from pinnace.server.local import LocalApi
from pinnace.server.write.reservations import Network
from pinnace.serving.cache.fanout import Fanout
from pinnace.serving.messages import Response

_log = logging.getLogger(__name__)
_HEADERS = {"content-type": "application/json", "user-agent": "kube-apiserver"}


class AddressRecords:
    """Reads ranges and addresses from the watch cache; writes through the API, as Kubernetes' own servers do."""

    def __init__(self, registry: Registry, fanout: Fanout) -> None:
        self._fanout = fanout
        addresses = registry.of_kind(Kind("networking.k8s.io", "v1", "IPAddress"))
        ranges = registry.of_kind(Kind("networking.k8s.io", "v1", "ServiceCIDR"))
        self._addresses = addresses.prefix if addresses is not None else ""
        self._ranges = ranges.prefix if ranges is not None else ""
        self._local: LocalApi | None = None

    def connect(self, local: LocalApi) -> None:
        """Write through this API. Without one, no objects are written."""
        self._local = local if self._addresses else None

    def ranges(self) -> Sequence[Network]:
        if not self._ranges:
            return ()
        stored = (entry.decode() for _, entry in sorted(self._fanout.cache(self._ranges).entries.items()))
        return [ip_network(text) for obj in stored if _is_ready(obj) for text in obj["spec"].get("cidrs") or ()]

    def is_taken(self, address: str) -> bool:
        return bool(self._addresses) and address in self._fanout.cache(self._addresses).entries

    async def create(self, address: str, service: AnyObject) -> bool:
        if self._local is None:
            return True
        answer = await self._local.request("POST", ADDRESSES, orjson.dumps(address_object(address, service)), _HEADERS)
        if answer.status == 409:
            return False
        if answer.status >= 400:
            raise error_of_status(orjson.loads(_body_of(answer)), code=answer.status)
        return True

    async def delete(self, address: str) -> None:
        if self._local is None:
            return
        answer = await self._local.request("DELETE", f"{ADDRESSES}/{address}", b"", _HEADERS)
        if answer.status >= 400 and answer.status != 404:
            # The service is gone already. The repair loop deletes the object later.
            _log.warning("IPAddress %s could not be deleted: %s", address, _body_of(answer).decode(errors="replace"))


def _body_of(answer: Response) -> bytes:
    return answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)


def _is_ready(service_range: Object) -> bool:
    """Whether addresses may be allocated from a range. One without a condition is ready: its controller may be late."""
    conditions = (service_range.get("status") or {}).get("conditions") or ()
    ready = next((condition["status"] for condition in conditions if condition["type"] == "Ready"), "True")
    return ready == "True" and "deletionTimestamp" not in service_range["metadata"]
