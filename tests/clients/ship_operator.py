"""A small operator written with kopf, which a test runs in a process of its own: it tells what it does in statuses."""

from __future__ import annotations

from typing import Any

import kopf

KIND = ("clients.example.com", "v1", "ships")


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.posting.enabled = False
    settings.persistence.finalizer = "clients.example.com/ship-operator"


@kopf.on.create(*KIND)
async def launched(spec: Any, **_: Any) -> dict[str, Any]:
    return {"from": spec["port"]}


@kopf.on.resume(*KIND)
async def resumed(patch: Any, **_: Any) -> None:
    patch.status["resumed"] = True


@kopf.on.update(*KIND, field="spec.crew")
async def recrewed(old: Any, new: Any, patch: Any, **_: Any) -> None:
    patch.status["aboard"] = new
    patch.status["before"] = old


@kopf.on.delete(*KIND)
async def scrapped(name: str, namespace: str | None, memo: kopf.Memo, **_: Any) -> None:
    """The finalizer is removed when this returns."""
