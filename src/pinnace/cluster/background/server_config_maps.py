"""The ConfigMaps that the API server itself keeps in kube-system, with or without controllers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from datetime import date
from functools import partial

from pinnace.auth.certificates.authority import FRONT_PROXY, CertificateFiles
from pinnace.client.client import Client
from pinnace.client.following import Event, Synced
from pinnace.cluster.background.server_jobs import BackgroundPlane
from pinnace.cluster.in_process import in_process_client
from pinnace.controllers.namespace_content import create_unless_leaving
from pinnace.model import errors
from pinnace.model.clock import Clock
from pinnace.model.objects import Key

TRUST = Key("kube-system", "extension-apiserver-authentication")
TOKEN_TRACKING = Key("kube-system", "kube-apiserver-legacy-service-account-token-tracking")
_CONFIG_MAP = "v1/ConfigMap"

Complete = Callable[[Mapping[str, str]], dict[str, str]]
"""Returns the data of a ConfigMap as it should be, from its present data."""


async def add_config_maps(plane: BackgroundPlane, files: CertificateFiles) -> None:
    """Write the ConfigMaps, and keep them in the background. Entries of others are left alone."""
    client = in_process_client(plane.local(), clock=plane.clock, field_manager="kube-apiserver")
    trust = trust_of(files)
    for hook, key, complete in (
        ("start-cluster-authentication-info-controller", TRUST, lambda data: {**data, **trust}),
        ("start-legacy-token-tracking-controller", TOKEN_TRACKING, partial(_with_start_of_tracking, plane.clock)),
    ):
        await _ensure(client, key, complete)
        plane.supervisor.add(f"poststarthook/{hook}", partial(keep_config_map, client, key, complete))


async def keep_config_map(client: Client, key: Key, complete: Complete) -> None:
    """Write a ConfigMap whenever it is not as it should be, until cancelled."""
    selection = client.follow(_CONFIG_MAP, namespace=key.namespace, fields=f"metadata.name={key.name}")
    async with aclosing(selection) as followed:
        async for change in followed:
            if isinstance(change, Event | Synced):
                await _ensure(client, key, complete)


def trust_of(files: CertificateFiles) -> dict[str, str]:
    """Return the entries of extension-apiserver-authentication: the CAs and headers that aggregated servers trust."""
    return {
        "client-ca-file": files.client_ca.read_text(),
        "requestheader-client-ca-file": files.front_proxy_ca.certificate.read_text(),
        "requestheader-allowed-names": json.dumps([FRONT_PROXY]),
        "requestheader-username-headers": json.dumps(["X-Remote-User"]),
        "requestheader-uid-headers": json.dumps(["X-Remote-Uid"]),
        "requestheader-group-headers": json.dumps(["X-Remote-Group"]),
        "requestheader-extra-headers-prefix": json.dumps(["X-Remote-Extra-"]),
    }


def _with_start_of_tracking(clock: Clock, data: Mapping[str, str]) -> dict[str, str]:
    """Return the data with the date since which the last use of service account token Secrets is known."""
    try:
        date.fromisoformat(data.get("since", ""))
    except ValueError:
        return {**data, "since": clock.now().date().isoformat()}
    return dict(data)


async def _ensure(client: Client, key: Key, complete: Complete) -> None:
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
