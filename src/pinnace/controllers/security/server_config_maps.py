"""The ConfigMaps that an API server itself keeps in kube-system, with or without controllers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from datetime import date

from pinnace.client.client import Client
from pinnace.client.following import Event, Synced
from pinnace.controllers.namespace_content import create_unless_leaving
from pinnace.model import errors
from pinnace.model.objects import Key
from pinnace.process.clock import Clock

TRUST = Key("kube-system", "extension-apiserver-authentication")
TOKEN_TRACKING = Key("kube-system", "kube-apiserver-legacy-service-account-token-tracking")
_CONFIG_MAP = "v1/ConfigMap"

Complete = Callable[[Mapping[str, str]], dict[str, str]]
"""Returns the data of a ConfigMap as it should be, from its present data."""


async def keep_config_map(client: Client, key: Key, complete: Complete) -> None:
    """Write a ConfigMap whenever it is not as it should be, until cancelled."""
    selection = client.follow(_CONFIG_MAP, namespace=key.namespace, fields=f"metadata.name={key.name}")
    async with aclosing(selection) as followed:
        async for change in followed:
            if isinstance(change, Event | Synced):
                await ensure_config_map(client, key, complete)


def with_start_of_tracking(clock: Clock, data: Mapping[str, str]) -> dict[str, str]:
    """Return the data with the date since which the last use of service account token Secrets is known."""
    try:
        date.fromisoformat(data.get("since", ""))
    except ValueError:
        return {**data, "since": clock.now().date().isoformat()}
    return dict(data)


async def ensure_config_map(client: Client, key: Key, complete: Complete) -> None:
    """Write a ConfigMap if it is not as it should be."""
    present = await client.get_or_none(_CONFIG_MAP, key.name, namespace=key.namespace)
    if present is None:
        metadata = {"name": key.name, "namespace": key.namespace}
        made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": complete({})}
        await create_unless_leaving(client, made)
        return
    data = present.get("data") or {}
    wanted = complete(data)
    if wanted != data:
        present["data"] = wanted
        with suppress(errors.Conflict, errors.NotFound):  # Another write came first: its event leads here again.
            await client.update(present)
