"""Gives back what an operator took over for as long as it ran: whoever judged and converted before does so again."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pinnace.client.client import Client
from pinnace.client.credentials import NoCredentials
from pinnace.client.transport import ConnectionLost
from pinnace.model import errors
from pinnace.model.objects import Object, kind_of
from pinnace.sdk.operator.installation import DEFINITION, put, webhook_configurations

if TYPE_CHECKING:
    from pinnace.sdk.operator.operator import Operator

_log = logging.getLogger(__name__)
_GONE = (errors.ApiError, ConnectionLost, NoCredentials)


@dataclass(frozen=True, slots=True)
class Predecessors:
    """Whom the server asked before this run, as far as they are still there: Services, never the url of a past run."""

    conversions: dict[str, Object] = field(default_factory=dict)
    """By definition, its spec.conversion."""
    configurations: dict[str, Object] = field(default_factory=dict)
    """By kind, the webhook configuration."""


async def predecessors(client: Client, operator: Operator) -> Predecessors:
    """Whom this run is about to replace. What a run has left behind that was killed is told."""
    found = Predecessors()
    for definition in _converted(operator):
        name = definition["metadata"]["name"]
        present = await client.get_or_none(DEFINITION, name)
        conversion = ((present or {}).get("spec") or {}).get("conversion") or {}
        reached = (conversion.get("webhook") or {}).get("clientConfig") or {}
        if "service" in reached:
            found.conversions[name] = conversion
        elif "url" in reached:
            _log.warning(
                "%s was left to a converter at %s, where nobody answers any more: that run was ended before it "
                "could say so. From now on it is converted here",
                name,
                reached["url"],
            )
    for configuration in webhook_configurations(operator, {"url": ""}):
        kind, name = configuration["kind"], configuration["metadata"]["name"]
        present = await client.get_or_none(kind_of(configuration), name)
        reached_by = [webhook["clientConfig"] for webhook in (present or {}).get("webhooks") or ()]
        if any("service" in one for one in reached_by):
            found.configurations[kind] = {**configuration, "webhooks": (present or {})["webhooks"]}
        elif reached_by:
            _log.warning(
                "%s %s was left behind by a run that was ended before it could remove it; writes were refused since",
                kind,
                name,
            )
    return found


async def hand_back(client: Client, operator: Operator, before: Predecessors) -> None:
    """Make the server ask those again whom it asked before. A server that is gone need not be told."""
    for configuration in webhook_configurations(operator, {"url": ""}):
        name = configuration["metadata"]["name"]
        former = before.configurations.get(configuration["kind"])
        try:
            if former is not None:
                await put(client, former, manager=operator.name)
            else:
                await client.delete(kind_of(configuration), name)
        except errors.NotFound:
            continue
        except _GONE as error:
            _log.warning("%s %s is still there and leads nowhere: %s", configuration["kind"], name, error)
    for definition in _converted(operator):
        name = definition["metadata"]["name"]
        try:
            if await client.get_or_none(DEFINITION, name) is None:
                continue  # Somebody has deleted it meanwhile: to give it back would be to make it anew.
            await put(client, _released(definition, before), manager=operator.name)
        except _GONE as error:
            _log.warning("%s still says that it is converted here: %s", name, error)


def _released(definition: Object, before: Predecessors) -> Object:
    name, spec = definition["metadata"]["name"], definition["spec"]
    former = before.conversions.get(name)
    if former is not None:
        return {**definition, "spec": {**spec, "conversion": former}}
    # Nobody is left to convert. Objects passed off as another version, unconverted, would lose what that does not know.
    kept = [{**version, "served": version["served"] and version["storage"]} for version in spec["versions"]]
    hidden = [version["name"] for version in spec["versions"] if version["served"] and not version["storage"]]
    if hidden:
        _log.info(
            "%s is not served as %s until somebody converts it", definition["metadata"]["name"], ", ".join(hidden)
        )
    return {**definition, "spec": {**spec, "versions": kept, "conversion": {"strategy": "None"}}}


def _converted(operator: Operator) -> list[Object]:
    """The definitions of which the operator converts the versions."""
    marked = operator.crds(conversion={"strategy": "None"})
    return [definition for definition in marked if "conversion" in definition["spec"]]
