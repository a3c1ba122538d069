"""The part of an encoded pod that tells whether the scheduler is concerned."""

from __future__ import annotations

import msgspec


class _Metadata(msgspec.Struct, gc=False):
    uid: str = ""
    deletionTimestamp: str = ""
    generation: int = 0
    labels: dict[str, str] | None = None


class _Spec(msgspec.Struct, gc=False):
    nodeName: str = ""
    schedulerName: str = ""


class _Status(msgspec.Struct, gc=False):
    phase: str = ""
    startTime: str = ""


class PodHead(msgspec.Struct, gc=False):
    metadata: _Metadata
    spec: _Spec
    status: _Status = msgspec.field(default_factory=_Status)

    @property
    def is_finished(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed")


decode_head = msgspec.json.Decoder(PodHead).decode
