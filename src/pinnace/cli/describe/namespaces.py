"""Descriptions of Namespaces with their limits, and of ConfigMaps, Secrets and ServiceAccounts."""

from __future__ import annotations

import base64
from collections.abc import Iterator

from pinnace.cli.describe.parts import NONE, Description, heading, heading_with_labels, long_time
from pinnace.client.client import Client
from pinnace.model import quantity
from pinnace.model.objects import Object
from pinnace.model.quantity import Quantity

_SCOPES = {
    "Terminating": "Matches all pods that have an active deadline. These pods have a limited lifespan on a node before "
    "being actively terminated by the system.",
    "NotTerminating": "Matches all pods that do not have an active deadline. These pods usually include long running "
    "pods whose container command is not expected to terminate.",
    "BestEffort": "Matches all pods that do not have resource requirements set. These pods have a best effort quality "
    "of service.",
    "NotBestEffort": "Matches all pods that have at least one resource requirement set. These pods have a burstable or "
    "guaranteed quality of service.",
}
_LIMITS = ("Type", "Resource", "Min", "Max", "Default Request", "Default Limit", "Max Limit/Request Ratio")
_LIMIT_FIELDS = ("min", "max", "defaultRequest", "default", "maxLimitRequestRatio")


async def namespace(page: Description, obj: Object, client: Client) -> None:
    heading_with_labels(page, obj, namespaced=False)
    status = obj.get("status") or {}
    page.pair("Status", status.get("phase", ""))
    if status.get("conditions"):
        page.line("Conditions:")
        rows = [
            (
                condition["type"],
                condition["status"],
                long_time(condition.get("lastTransitionTime")),
                condition.get("reason", ""),
                condition.get("message", ""),
            )
            for condition in status["conditions"]
        ]
        page.table(("Type", "Status", "LastTransitionTime", "Reason", "Message"), rows)
    name = obj["metadata"]["name"]
    page.line()
    quotas = await client.list("v1/ResourceQuota", namespace=name)
    page.line("Resource Quotas" if quotas else "No resource quota.")
    for quota in sorted(quotas, key=lambda obj: str(obj["metadata"]["name"])):
        page.pair("Name", quota["metadata"]["name"], 1)
        _scopes(page, quota, level=1, bullet="*")
        page.table(("Resource", "Used", "Hard"), _amounts(quota), rule=("--------", "---", "---"))
    page.line()
    ranges = await client.list("v1/LimitRange", namespace=name)
    page.line("Resource Limits" if ranges else "No LimitRange resource.")
    if ranges:
        titles = (f" {_LIMITS[0]}", *_LIMITS[1:])
        rule = (" ----", *("-" * len(title) for title in _LIMITS[1:]))
        limits = [(f" {kind}", *cells) for limit_range in ranges for kind, *cells in _limits(limit_range)]
        page.table(titles, limits, level=0, rule=rule)


def resource_quota(page: Description, obj: Object) -> None:
    heading(page, obj)
    _scopes(page, obj, level=0, bullet=" *")
    # Used amounts have the same format as the quota: 1Gi of 2Gi, 1e9 of 2e9.
    rows = [
        (resource, used if used.format == hard.format else quantity.of(used.value, hard.format), hard)
        for resource, used, hard in _amounts(obj)
    ]
    page.table(("Resource", "Used", "Hard"), rows, level=0)


def limit_range(page: Description, obj: Object) -> None:
    heading(page, obj)
    page.table(_LIMITS, _limits(obj), level=0)


def _scopes(page: Description, quota: Object, *, level: int, bullet: str) -> None:
    scopes = sorted(quota["spec"].get("scopes") or ())
    if scopes:
        page.pair("Scopes", ", ".join(scopes), level)
        for scope in scopes:
            if scope in _SCOPES:
                page.line(f"{bullet} {_SCOPES[scope]}", level)


def _amounts(quota: Object) -> Iterator[tuple[str, Quantity, Quantity]]:
    """Return the used amount and the limit of each resource."""
    status = quota.get("status") or {}
    for resource, hard in sorted((status.get("hard") or {}).items()):
        yield resource, quantity.parse((status.get("used") or {}).get(resource, "0")), quantity.parse(hard)


def _limits(obj: Object) -> Iterator[tuple[str, ...]]:
    for limit in obj["spec"].get("limits") or ():
        for resource in sorted({name for field in _LIMIT_FIELDS for name in limit.get(field) or {}}):
            amounts = (str((limit.get(field) or {}).get(resource, "-")) for field in _LIMIT_FIELDS)
            yield limit["type"], resource, *amounts


def config_map(page: Description, obj: Object) -> None:
    heading_with_labels(page, obj)
    page.line("\nData\n====")
    for key in sorted(obj.get("data") or {}):
        page.line(f"{key}:\n----\n{obj['data'][key]}\n")
    page.line("\nBinaryData\n====")
    for key in sorted(obj.get("binaryData") or {}):
        page.line(f"{key}: {len(base64.b64decode(obj['binaryData'][key]))} bytes")
    page.line()


def secret(page: Description, obj: Object) -> None:
    """Describe a Secret: the sizes of its values only, since a screen may be seen by others."""
    heading_with_labels(page, obj)
    page.line(f"\nType:\t{obj.get('type', '')}")
    page.line("\nData\n====")
    for key in sorted(obj.get("data") or {}):
        page.pair(key, f"{len(base64.b64decode(obj['data'][key]))} bytes")


def service_account(page: Description, obj: Object) -> None:
    heading_with_labels(page, obj)
    names = [reference.get("name", "") for reference in obj.get("imagePullSecrets") or ()]
    for place, name in enumerate(names or [NONE]):
        page.line(f"{'Image pull secrets:' if place == 0 else ' ' * 19}\t{name}")
