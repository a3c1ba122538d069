"""Puts an operator's definitions and webhook configurations into a cluster, and waits until they count."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from typing import TYPE_CHECKING

from pinnace.client.client import Client
from pinnace.client.credentials import NoCredentials
from pinnace.client.following import Event
from pinnace.client.transport import ConnectionLost
from pinnace.model import errors
from pinnace.model.objects import Object, kind_of
from pinnace.reconcile.conditions import condition, is_true
from pinnace.sdk.resources import kind_like

if TYPE_CHECKING:
    from pinnace.sdk.operator import Operator

DEFINITION = "apiextensions.k8s.io/v1/CustomResourceDefinition"
PATIENCE = 30.0
_log = logging.getLogger(__name__)
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
        await client.apply(definition, field_manager=operator.name, force=True)
        await established(client, definition["metadata"]["name"])


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
        await client.apply(configuration, field_manager=operator.name, force=True)


async def remove_gates(client: Client, operator: Operator) -> None:
    """Make the server ask no more. A server that is gone need not be told."""
    for configuration in webhook_configurations(operator, {"url": ""}):
        name = configuration["metadata"]["name"]
        try:
            await client.delete(kind_of(configuration), name)
        except errors.NotFound:
            continue
        except (errors.ApiError, ConnectionLost, NoCredentials) as problem:
            _log.warning("%s %s is still there and leads nowhere: %s", configuration["kind"], name, problem)


def webhook_configurations(operator: Operator, reached: Object) -> list[Object]:
    """The webhook configurations that lead to an operator: one for those who change, one for those who refuse."""
    found = []
    for changes, kind in ((True, "MutatingWebhookConfiguration"), (False, "ValidatingWebhookConfiguration")):
        webhooks = []
        for number, gate in enumerate(gate for gate in operator.declared.gates if gate.changes is changes):
            named = kind_like(gate.kind)
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


def service_reference(service: str) -> Object:
    """How a clientConfig names a Service that is written as namespace/name."""
    namespace, slash, name = service.partition("/")
    if not slash or not namespace or not name:
        raise ValueError(f"{service!r} does not name a Service; write namespace/name")
    return {"namespace": namespace, "name": name, "port": 443}


def _with_path(reached: Object, path: str) -> Object:
    if "service" in reached:
        return {**reached, "service": {**reached["service"], "path": path}}
    return {**reached, "url": f"{reached['url']}{path}"}
