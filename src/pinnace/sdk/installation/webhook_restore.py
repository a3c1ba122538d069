"""Restore, at the end of a run, the webhook addresses that it replaced, so that a deployed operator is called again."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from pinnace.client.client import Client
from pinnace.client.credentials import NoCredentials
from pinnace.client.transport import ConnectionLost
from pinnace.model import errors
from pinnace.model.objects import Object, kind_of
from pinnace.sdk.declarations import Declarations
from pinnace.sdk.installation.api_registration import is_served
from pinnace.sdk.installation.installation import DEFINITION, put, webhook_configurations

_log = logging.getLogger(__name__)
_GONE = (errors.ApiError, ConnectionLost, NoCredentials)


@dataclass(frozen=True, slots=True)
class PreviousWebhooks:
    """The webhooks that the server called before this run: Services, and other runs that still answer."""

    own_url: str
    """The address of this run."""
    conversions: dict[str, Object] = field(default_factory=dict)
    """spec.conversion, by the name of the definition."""
    configurations: dict[str, Object] = field(default_factory=dict)
    """Webhook configurations, by kind."""


async def find_previous_webhooks(client: Client, declarations: Declarations, own_url: str) -> PreviousWebhooks:
    """Return the webhooks that this run will replace. Log those that a killed run has left behind."""
    previous = PreviousWebhooks(own_url)
    for definition in converted_definitions(declarations):
        name = definition["metadata"]["name"]
        conversion = _conversion_of(await client.get_or_none(DEFINITION, name))
        if await _is_answered(_addresses(conversion), declarations.name):
            previous.conversions[name] = conversion
        elif url := _urls(_addresses(conversion)):
            _log.warning(
                "%s has a conversion webhook at %s, left behind by a run that was killed. This run converts it now",
                name,
                url[0],
            )
    for configuration in webhook_configurations(declarations, {"url": ""}):
        kind, name = configuration["kind"], configuration["metadata"]["name"]
        present = await client.get_or_none(kind_of(configuration), name) or {}
        if await _is_answered(_addresses(present), declarations.name):
            previous.configurations[kind] = {**configuration, "webhooks": present["webhooks"]}
        elif _addresses(present):
            _log.warning("%s %s was left behind by a run that was killed; writes have failed since then", kind, name)
    return previous


async def restore_webhooks(client: Client, declarations: Declarations, previous: PreviousWebhooks) -> None:
    """Make the server call the previous webhooks again, unless another run has replaced those of this run since.

    An unreachable server is only logged.
    """
    for configuration in webhook_configurations(declarations, {"url": ""}):
        name = configuration["metadata"]["name"]
        former = previous.configurations.get(configuration["kind"])
        try:
            present = await client.get(kind_of(configuration), name)
            if not _leads_to(_addresses(present), previous.own_url):
                continue
            if former is not None and await _is_answered(_addresses(former)):
                await put(client, former, manager=declarations.name)
            else:
                await client.delete(kind_of(configuration), name)
        except errors.NotFound:
            continue
        except _GONE as error:
            _log.warning("%s %s was not restored and leads nowhere: %s", configuration["kind"], name, error)
    for definition in converted_definitions(declarations):
        name = definition["metadata"]["name"]
        try:
            conversion = _conversion_of(await client.get_or_none(DEFINITION, name))
            if not _leads_to(_addresses(conversion), previous.own_url):
                continue  # It was deleted meanwhile, or another run converts it.
            former = previous.conversions.get(name)
            leads_on = former is not None and await _is_answered(_addresses(former))
            await put(client, _restore(definition, former if leads_on else None), manager=declarations.name)
        except _GONE as error:
            _log.warning("%s was not restored; its conversion webhook leads nowhere: %s", name, error)


def _conversion_of(definition: Object | None) -> Object:
    return ((definition or {}).get("spec") or {}).get("conversion") or {}


def _addresses(obj: Object) -> list[Object]:
    """Return each clientConfig of a webhook configuration or of a spec.conversion."""
    webhooks = obj["webhooks"] if "webhooks" in obj else [obj.get("webhook") or {}]
    return [webhook["clientConfig"] for webhook in webhooks or () if webhook.get("clientConfig")]


def _urls(addresses: list[Object]) -> list[str]:
    return [address["url"] for address in addresses if "url" in address]


def _leads_to(addresses: list[Object], url: str) -> bool:
    return any(address.startswith(f"{url}/") for address in _urls(addresses))


async def _is_answered(addresses: list[Object], name: str = "") -> bool:
    """Return whether the server can call these webhooks: those of a Service, or of a run that still answers.

    Log the other run, if `name` is the operator's name.
    """
    if any("service" in address for address in addresses):
        return True
    for url in _urls(addresses)[:1]:
        at = urlsplit(url)
        if await is_served(at.hostname or "", at.port or 443):
            if name:
                _log.info("another run of %s serves its webhooks at %s; this run serves them until it ends", name, url)
            return True
    return False


def _restore(definition: Object, former: Object | None) -> Object:
    name, spec = definition["metadata"]["name"], definition["spec"]
    if former is not None:
        return {**definition, "spec": {**spec, "conversion": former}}
    # Without a converter only the storage version is served: objects relabelled as another version would lose fields.
    versions = [{**version, "served": version["served"] and version["storage"]} for version in spec["versions"]]
    hidden = [version["name"] for version in spec["versions"] if version["served"] and not version["storage"]]
    if hidden:
        _log.info("%s is not served as %s until an operator converts it", name, ", ".join(hidden))
    return {**definition, "spec": {**spec, "versions": versions, "conversion": {"strategy": "None"}}}


def converted_definitions(declarations: Declarations) -> list[Object]:
    """Return the definitions whose versions the operator converts."""
    marked = declarations.crds(conversion={"strategy": "None"})
    return [definition for definition in marked if "conversion" in definition["spec"]]
