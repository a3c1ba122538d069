"""Puts an operator's definitions and webhook configurations into a cluster, and waits until they count."""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple

from pinnace.client.client import Client
from pinnace.client.following import Event
from pinnace.client.mapping import NoSuchKind, kind_from
from pinnace.model import errors
from pinnace.model.objects import Kind, Object, kind_of
from pinnace.reconcile.conditions import condition, is_true

if TYPE_CHECKING:
    from pinnace.sdk.operator.operator import Operator

_log = logging.getLogger(__name__)

DEFINITION = "apiextensions.k8s.io/v1/CustomResourceDefinition"
PATIENCE = 30.0
_SERVICE = re.compile(r"(?P<namespace>[^/:]+)/(?P<name>[^/:]+)(:(?P<port>[0-9]{1,5}))?")
_REVIEWS = ["v1"]


class NotEstablished(Exception):
    """The server does not serve a definition. The message says why, as far as the server does."""


async def install_definitions(
    client: Client, operator: Operator, reached: Object | None, *, only_converted: bool = False
) -> None:
    """Make the server serve the operator's kinds. `reached` is the clientConfig of its webhooks.

    With `only_converted` those that need no converter are left alone: somebody else has installed them.
    """
    for definition in operator.crds(conversion=conversion_by(reached) if reached is not None else None):
        if only_converted and "conversion" not in definition["spec"]:
            continue
        await put(client, definition, manager=operator.name)
        await established(client, definition["metadata"]["name"])


async def install_external_definitions(client: Client, operator: Operator) -> None:
    """Make the server serve others' kinds that the operator uses, if it does not. For clusters that are ours alone."""
    for definition in operator.external_crds():
        name, spec = definition["metadata"]["name"], definition["spec"]
        if await client.get_or_none(DEFINITION, name) is not None or await _is_served(client, spec):
            continue
        try:
            await client.create(definition, field_manager=operator.name)
        except errors.AlreadyExists:
            continue  # Another operator of the same cluster needs it, too.
        await established(client, name)
        _log.info(
            "%s is somebody else's, who is not in this cluster; its CRD was made from the class, for %s",
            name,
            operator.name,
        )


async def _is_served(client: Client, spec: Object) -> bool:
    """Whether somebody serves a kind without a definition: an API server of its own does."""
    for version in spec["versions"]:
        try:
            await client.kinds.find(Kind(spec["group"], version["name"], spec["names"]["kind"]))
        except NoSuchKind:
            continue
        return True
    return False


async def established(client: Client, name: str) -> None:
    """Return when a definition is served. Raises NotEstablished if its names are taken, or it takes too long."""
    last: Object = {}
    try:
        async with (
            asyncio.timeout(PATIENCE),
            aclosing(client.follow(DEFINITION, fields=f"metadata.name={name}")) as news,
        ):
            async for event in news:
                if not isinstance(event, Event) or event.type == "DELETED":
                    continue
                last = event.snapshot.object
                names = condition(last, "NamesAccepted")
                if names is not None and names["status"] == "False":
                    raise NotEstablished(f"{name} is not served: {names.get('message')}")
                if is_true(last, "Established"):
                    return
    except TimeoutError:
        raise NotEstablished(f"{name} is not served after {PATIENCE:.0f} s; its status: {last.get('status')}") from None


def conversion_by(reached: Object) -> Object:
    """What a CRD says of its converter."""
    config = _with_path(reached, "/convert")
    return {"strategy": "Webhook", "webhook": {"clientConfig": config, "conversionReviewVersions": _REVIEWS}}


async def install_gates(client: Client, operator: Operator, reached: Object) -> None:
    """Make the server ask the operator's validating and mutating functions."""
    for configuration in webhook_configurations(operator, reached):
        await put(client, configuration, manager=operator.name)


async def put(client: Client, obj: Object, *, manager: str) -> None:
    """Apply a definition or a configuration, even where somebody else has said that it leads elsewhere.

    A url does not push out the service that another manager has named, nor the other way round; both are refused.
    """
    kind, name = kind_of(obj), obj["metadata"]["name"]
    present = await client.get_or_none(kind, name)
    if present is not None and _ways(present) != _ways(obj):
        await client.patch(kind, name, _replacement(obj), field_manager=manager)
    await client.apply(obj, field_manager=manager, force=True)


def _ways(obj: Object) -> list[str]:
    """How each webhook of a definition or a configuration is reached: by service, or by url."""
    conversion = (obj.get("spec") or {}).get("conversion") or {}
    webhooks = obj["webhooks"] if "webhooks" in obj else [conversion.get("webhook") or {}]
    return [next(iter({"service", "url"} & (webhook.get("clientConfig") or {}).keys()), "") for webhook in webhooks]


def _replacement(obj: Object) -> Object:
    """The merge patch after which nothing else leads anywhere."""
    if "webhooks" in obj:
        return {"webhooks": obj["webhooks"]}
    conversion = obj["spec"].get("conversion") or {"strategy": "None"}
    webhook = conversion.get("webhook")
    if webhook is not None:
        webhook = {**webhook, "clientConfig": {"service": None, "url": None, **webhook["clientConfig"]}}
    return {"spec": {"conversion": {**conversion, "webhook": webhook}}}


def webhook_configurations(operator: Operator, reached: Object) -> list[Object]:
    """The webhook configurations that lead to an operator: one for those who change, one for those who refuse."""
    found = []
    for changes, kind in ((True, "MutatingWebhookConfiguration"), (False, "ValidatingWebhookConfiguration")):
        webhooks = []
        for number, gate in enumerate(gate for gate in operator.declared.gates if gate.changes is changes):
            named = kind_from(gate.kind)
            rule = {
                "apiGroups": [named.group],
                "apiVersions": [named.version],
                "resources": [gate.plural],
                "operations": list(gate.operations),
                "scope": "*",
            }
            webhook = {
                "name": f"{named.name.lower()}-{number}.{operator.name}.{named.group or 'core'}",
                "clientConfig": _with_path(reached, gate.path),
                "rules": [rule],
                "admissionReviewVersions": _REVIEWS,
                "sideEffects": "None",
                "failurePolicy": "Ignore" if gate.ignore_failure else "Fail",
                "timeoutSeconds": 10,
            }
            webhooks.append(webhook)
        if webhooks:
            found.append(
                {
                    "apiVersion": "admissionregistration.k8s.io/v1",
                    "kind": kind,
                    "metadata": {"name": operator.name},
                    "webhooks": webhooks,
                }
            )
    return found


class ServiceName(NamedTuple):
    """A Service of the cluster, written as namespace/name or namespace/name:port."""

    namespace: str
    name: str
    port: int = 443

    @classmethod
    def parse(cls, text: str) -> ServiceName:
        found = _SERVICE.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} does not name a Service; write namespace/name, or namespace/name:port")
        return cls(found["namespace"], found["name"], int(found["port"] or 443))


def service_reference(service: ServiceName) -> Object:
    """How a clientConfig names a Service."""
    return service._asdict()


def _with_path(reached: Object, path: str) -> Object:
    if "service" in reached:
        return {**reached, "service": {**reached["service"], "path": path}}
    return {**reached, "url": f"{reached['url']}{path}"}
