"""Restore, at the end of a run, the webhook addresses that it replaced, so that a deployed operator is called again."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from pinnace.client.client import Client
from pinnace.client.credentials import NoCredentials
from pinnace.client.transport import ConnectionLost
from pinnace.model import errors
from pinnace.model.objects import Object, kind_of
from pinnace.sdk.operator.declarations import Declarations
from pinnace.sdk.operator.installation import DEFINITION, put, webhook_configurations

_log = logging.getLogger(__name__)
_GONE = (errors.ApiError, ConnectionLost, NoCredentials)


@dataclass(frozen=True, slots=True)
class PreviousWebhooks:
    """The webhooks that the server called before this run. Only Services: the url of a former run leads nowhere."""

    conversions: dict[str, Object] = field(default_factory=dict)
    """spec.conversion, by the name of the definition."""
    configurations: dict[str, Object] = field(default_factory=dict)
    """Webhook configurations, by kind."""


async def find_previous_webhooks(client: Client, declarations: Declarations) -> PreviousWebhooks:
    """Return the webhooks that this run will replace. Log those that a killed run has left behind."""
    found = PreviousWebhooks()
    for definition in _converted_definitions(declarations):
        name = definition["metadata"]["name"]
        present = await client.get_or_none(DEFINITION, name)
        conversion = ((present or {}).get("spec") or {}).get("conversion") or {}
        client_config = (conversion.get("webhook") or {}).get("clientConfig") or {}
        if "service" in client_config:
            found.conversions[name] = conversion
        elif "url" in client_config:
            _log.warning(
                "%s has a conversion webhook at %s, left behind by a run that was killed. This run converts it now",
                name,
                client_config["url"],
            )
    for configuration in webhook_configurations(declarations, {"url": ""}):
        kind, name = configuration["kind"], configuration["metadata"]["name"]
        present = await client.get_or_none(kind_of(configuration), name)
        client_configs = [webhook["clientConfig"] for webhook in (present or {}).get("webhooks") or ()]
        if any("service" in one for one in client_configs):
            found.configurations[kind] = {**configuration, "webhooks": (present or {})["webhooks"]}
        elif client_configs:
            _log.warning("%s %s was left behind by a run that was killed; writes have failed since then", kind, name)
    return found


async def restore_webhooks(client: Client, declarations: Declarations, previous: PreviousWebhooks) -> None:
    """Make the server call the previous webhooks again. An unreachable server is only logged."""
    for configuration in webhook_configurations(declarations, {"url": ""}):
        name = configuration["metadata"]["name"]
        former = previous.configurations.get(configuration["kind"])
        try:
            if former is not None:
                await put(client, former, manager=declarations.name)
            else:
                await client.delete(kind_of(configuration), name)
        except errors.NotFound:
            continue
        except _GONE as error:
            _log.warning("%s %s was not restored and leads nowhere: %s", configuration["kind"], name, error)
    for definition in _converted_definitions(declarations):
        name = definition["metadata"]["name"]
        try:
            if await client.get_or_none(DEFINITION, name) is None:
                continue  # It was deleted meanwhile: an apply would create it again.
            await put(client, _restore(definition, previous), manager=declarations.name)
        except _GONE as error:
            _log.warning("%s was not restored; its conversion webhook leads nowhere: %s", name, error)


def _restore(definition: Object, previous: PreviousWebhooks) -> Object:
    name, spec = definition["metadata"]["name"], definition["spec"]
    former = previous.conversions.get(name)
    if former is not None:
        return {**definition, "spec": {**spec, "conversion": former}}
    # Without a converter only the storage version is served: objects relabelled as another version would lose fields.
    versions = [{**version, "served": version["served"] and version["storage"]} for version in spec["versions"]]
    hidden = [version["name"] for version in spec["versions"] if version["served"] and not version["storage"]]
    if hidden:
        _log.info("%s is not served as %s until an operator converts it", name, ", ".join(hidden))
    return {**definition, "spec": {**spec, "versions": versions, "conversion": {"strategy": "None"}}}


def _converted_definitions(declarations: Declarations) -> list[Object]:
    """Return the definitions whose versions the operator converts."""
    marked = declarations.crds(conversion={"strategy": "None"})
    return [definition for definition in marked if "conversion" in definition["spec"]]
