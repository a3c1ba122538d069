"""A control plane with plug-ins that are off by default."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.server.in_process import InProcess

from pinnace.cluster.control_plane import build
from pinnace.cluster.settings import AdmissionSettings, Settings
from pinnace.model.objects import Object
from pinnace.process.clock import AlarmClock
from pinnace.store.memory import MemoryStore
from pinnace.testing.clock import ManualClock

NAMESPACES = "/api/v1/namespaces"


@asynccontextmanager
async def running(
    *plugins: str,
    configuration: Path | None = None,
    disabled: frozenset[str] = frozenset(),
    clock: AlarmClock | None = None,
) -> AsyncIterator[InProcess]:
    """A control plane with the namespace `default`, unless a plug-in refuses it."""
    admission = AdmissionSettings(enabled=frozenset(plugins), disabled=disabled, configuration=configuration)
    plane = await build(Settings(admission=admission), MemoryStore(), clock=clock or ManualClock())
    server = InProcess(plane)
    await server.post(NAMESPACES, {"metadata": {"name": "default"}})
    yield server
    await plane.close()


def configure(directory: Path, plugin: str, settings: Any) -> Path:
    """Write an AdmissionConfiguration with the settings of one plug-in."""
    path = directory / "admission.json"
    head = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration"}
    path.write_text(json.dumps({**head, "plugins": [{"name": plugin, "configuration": settings}]}))
    return path


async def annotate(server: InProcess, namespace: str, annotations: Object) -> None:
    reply = await server.patch(f"{NAMESPACES}/{namespace}", {"metadata": {"annotations": annotations}})
    assert reply.status == 200, reply.body
