"""Endpoint slices as v1beta1 wrote them: with a topology for each endpoint."""

from __future__ import annotations

from pinnace.kinds import older_schemas
from pinnace.model.objects import Object
from pinnace.schema.shape import Schema

_STRING = {"type": "string"}
ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"
_STRING_MAP = {"type": "object", "additionalProperties": _STRING}


def old_endpoint_slice(schema: Schema) -> Schema:
    change = older_schemas.with_fields(("deprecatedTopology", "zone"), topology=_STRING_MAP)
    return older_schemas.at(schema, "endpoints.[]", change)


def slice_to_v1(endpoint_slice: Object) -> Object:
    for endpoint in endpoint_slice.get("endpoints") or ():
        topology = endpoint.pop("topology", None)
        if not topology:
            continue
        rest = dict(topology)
        if ZONE in rest:
            endpoint["zone"] = rest.pop(ZONE)
        # A host name that differs from the node's name is kept.
        if HOSTNAME in rest and rest[HOSTNAME] == endpoint.get("nodeName"):
            del rest[HOSTNAME]
        if rest:
            endpoint["deprecatedTopology"] = rest
    return endpoint_slice


def slice_from_v1(endpoint_slice: Object) -> Object:
    for endpoint in endpoint_slice.get("endpoints") or ():
        topology = dict(endpoint.pop("deprecatedTopology", None) or {})
        zone, node = endpoint.pop("zone", None), endpoint.get("nodeName")
        if zone is not None:
            topology[ZONE] = zone
        if node is not None and not topology.get(HOSTNAME):
            topology[HOSTNAME] = node
        if topology:
            endpoint["topology"] = topology
    return endpoint_slice
