"""The part of an encoded pod that tells whether it is to be scheduled."""

from __future__ import annotations

from typing import Any

import msgspec


class _Metadata(msgspec.Struct, gc=False):
    uid: str = ""
    deletionTimestamp: str = ""


class _Spec(msgspec.Struct, gc=False):
    nodeName: str = ""
    schedulerName: str = ""
    priority: int = 0
    schedulingGates: list[Any] | None = None


class _Status(msgspec.Struct, gc=False):
    phase: str = ""


class PodHead(msgspec.Struct, gc=False):
    metadata: _Metadata
    spec: _Spec
    status: _Status = msgspec.field(default_factory=_Status)

    @property
    def is_finished(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed")


decode_head = msgspec.json.Decoder(PodHead).decode
