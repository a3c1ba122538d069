"""Creates the objects that every cluster has from its start, where they do not exist yet."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import orjson

from pinnace.kinds.networking.address_objects import ADDRESSES
from pinnace.kinds.services.service_range import SERVICE_RANGE
from pinnace.model.objects import Kind, Object
from pinnace.server.bootstrap.default_roles import ensure_default_roles
from pinnace.server.bootstrap.endpoints import Server, is_usable_address, write_endpoints
from pinnace.server.bootstrap.identity import ALONE, ServerIdentity
from pinnace.server.bootstrap.objects import DEFAULT_SERVICE_ACCOUNT, bootstrap_objects
from pinnace.server.foundation import Foundation
from pinnace.server.local import LocalApi
from pinnace.server.status.managers import APPLIERS, CREATORS, SERVER

_log = logging.getLogger(__name__)
_WAIT_SECONDS, _WAIT_TURNS = 0.1, 50


async def bootstrap(
    foundation: Foundation,
    local: LocalApi,
    at: Server,
    *,
    storage_class: Object | None = None,
    service_ranges: Sequence[str] = (SERVICE_RANGE,),
    has_controllers: bool = False,
    identity: ServerIdentity = ALONE,
) -> None:
    """Create the bootstrap objects that this cluster lacks, and publish the address of its only server.

    Where controllers run, the namespace `default` has its service account from the start: the first pod can be created
    as soon as the cluster is ready. The controller makes those of other namespaces.

    A new cluster gets the `storage_class`. It is the user's from then on: a class that was deleted does not come back.
    """
    address, port = at
    if storage_class is not None and _is_new(foundation):
        await _ensure(foundation, local, storage_class)
    for obj in bootstrap_objects(
        foundation.registry,
        address=address,
        port=port,
        now=foundation.clock.now(),
        service_ranges=service_ranges,
        server=identity,
    ):
        await _ensure(foundation, local, obj)
    await _extend_service_cidr(foundation, local, list(service_ranges))
    if has_controllers:
        await _ensure(foundation, local, DEFAULT_SERVICE_ACCOUNT)
    await ensure_default_roles(
        foundation.registry,
        foundation.fanout,
        foundation.store,
        foundation.clock.now(),
        minor=foundation.definitions.minor,
        gates=foundation.gates,
    )
    if not foundation.store.is_shared and is_usable_address(address):  # See MasterLeases for several servers.
        await write_endpoints(foundation, lambda: [(address, port)])


def _is_new(foundation: Foundation) -> bool:
    namespaces = foundation.registry.of_kind(Kind("", "v1", "Namespace"))
    return namespaces is not None and not foundation.fanout.cache(namespaces.prefix).entries


async def _extend_service_cidr(foundation: Foundation, local: LocalApi, cidrs: list[str]) -> None:
    """Add the second range to the default ServiceCIDR of a cluster that was single-stack until this start."""
    resource = foundation.registry.of_kind(Kind("networking.k8s.io", "v1", "ServiceCIDR"))
    if resource is None:
        return
    entry = foundation.fanout.cache(resource.prefix).entries.get("kubernetes")
    stored = entry.decode()["spec"]["cidrs"] if entry is not None else cidrs
    if stored == cidrs:
        return
    if stored != cidrs[:1]:
        _log.warning("The default ServiceCIDR is %s, and --service-cluster-ip-range is %s", stored, cidrs)
        return
    headers = {"content-type": "application/merge-patch+json", "user-agent": SERVER}
    target = "/apis/networking.k8s.io/v1/servicecidrs/kubernetes"
    await local.request("PATCH", target, orjson.dumps({"spec": {"cidrs": cidrs}}), headers)


class BootstrapError(Exception):
    """An object that every cluster has could not be created."""

    def __init__(self, plural: str, name: str, reason: str) -> None:
        super().__init__(f"the cluster cannot start without {plural} {name}, which could not be created: {reason}")


async def _appears(foundation: Foundation, key: str) -> bool:
    """Wait for an object whose address is taken already: another server creates it now, or was killed in between."""
    for _ in range(_WAIT_TURNS if foundation.store.is_shared else 0):
        await foundation.store.sync()
        if await foundation.store.get(key) is not None:
            return True
        await asyncio.sleep(_WAIT_SECONDS)
    return False


async def _ensure(foundation: Foundation, local: LocalApi, obj: Object) -> None:
    resource = foundation.registry.of_kind(Kind.parse(obj["apiVersion"], obj["kind"]))
    if resource is None:
        return  # This minor does not have the kind.
    name = obj["metadata"]["name"]
    key = f"{obj['metadata']['namespace']}/{name}" if resource.namespaced else name
    if key in foundation.fanout.cache(resource.prefix).entries:
        return  # Created at an earlier start. Changes that users made since are kept.
    group = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    where = f"/namespaces/{obj['metadata']['namespace']}" if resource.namespaced else ""
    target = f"{group}{where}/{resource.plural}"
    headers = {"content-type": "application/json", "user-agent": CREATORS.get(obj["kind"], SERVER)}
    answer = await local.request("POST", target, orjson.dumps(obj), headers)
    if answer.status == 422 and obj["kind"] == "Service":
        if await _appears(foundation, resource.prefix + key):
            return
        await local.request("DELETE", f"{ADDRESSES}/{obj['spec']['clusterIP']}", b"", headers)
        answer = await local.request("POST", target, orjson.dumps(obj), headers)
    if answer.status not in (201, 409):
        body = answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)
        raise BootstrapError(resource.plural, name, orjson.loads(body).get("message", body.decode()))
    if answer.status == 201 and "status" in obj and resource.has_status:
        await _write_status(local, f"{target}/{name}/status", obj)


async def _write_status(local: LocalApi, target: str, obj: Object) -> None:
    if obj["kind"] == "APIService":
        return  # It is created with the status of a local one.
    status = {"status": obj["status"]}
    if manager := APPLIERS.get(obj["kind"]):
        identity = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": {"name": obj["metadata"]["name"]}}
        headers = {"content-type": "application/apply-patch+yaml", "user-agent": manager}
        target += f"?fieldManager={manager}&force=true"
        await local.request("PATCH", target, orjson.dumps({**identity, **status}), headers)
    else:
        headers = {"content-type": "application/merge-patch+json", "user-agent": SERVER}
        await local.request("PATCH", target, orjson.dumps(status), headers)
