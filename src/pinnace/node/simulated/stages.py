"""The words of a simulated life: a stage has a delay and effects; a life says which stages an object may enter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Literal, NamedTuple, Protocol

import msgspec

from pinnace.client.writing import PatchForm
from pinnace.model.objects import Object


class InvalidStage(ValueError):
    """A stage cannot be read. The message names the file and the stage."""


class StagePatch(NamedTuple):
    """Change the object."""

    body: Object | list[Object]
    subresource: str = "status"
    form: PatchForm = "merge"


class Delete(NamedTuple):
    """Remove the object at once."""


class Emit(NamedTuple):
    """Record an Event about the object."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


Effect = StagePatch | Delete | Emit


class StageContext(Protocol):
    """What a stage may ask about the node of a pod."""

    @property
    def now(self) -> str:
        """RFC 3339."""

    def host_ips(self, node: str) -> Sequence[str]: ...

    def node_ip(self, node: str) -> str:
        """The address of a node, allocated if it has none yet."""

    def pod_ips(self, pod: Object) -> Sequence[str]:
        """The addresses of a pod: its own, or its node's on the host network. Allocated when first asked for."""


class Stage(Protocol):
    """One step of a life."""

    @property
    def name(self) -> str: ...

    @property
    def is_followed_at_once(self) -> bool:
        """Whether the next stage is chosen from the answer to this one's write, before the watch tells of it."""

    def delay(self, obj: Object, now: datetime) -> float:
        """Seconds between entering the stage and its effects."""

    def effects(self, obj: Object, context: StageContext) -> Iterable[Effect]:
        """The writes of this stage, in order."""


class _Owner(msgspec.Struct, gc=False):
    kind: str = ""


class _Metadata(msgspec.Struct, gc=False):
    deletionTimestamp: str = ""
    ownerReferences: list[_Owner] | None = None
    labels: dict[str, str] | None = None


class _Spec(msgspec.Struct, gc=False):
    nodeName: str = ""


class _Status(msgspec.Struct, gc=False):
    phase: str = ""
    podIP: str = ""


class PodHead(msgspec.Struct, gc=False):
    """The part of an encoded pod that decides whether it has to be decoded."""

    metadata: _Metadata
    spec: _Spec
    status: _Status = msgspec.field(default_factory=_Status)

    @property
    def is_of_job(self) -> bool:
        return any(owner.kind == "Job" for owner in self.metadata.ownerReferences or ())


decode_head = msgspec.json.Decoder(PodHead).decode


class Life(Protocol):
    """The stages of the pods of simulated nodes, or of the nodes."""

    def concerns(self, head: PodHead) -> bool:
        """Whether a pod may enter a stage now. Asked for every change of a pod: it must be cheap."""

    def stages_of(self, obj: Object) -> list[Stage]:
        """The stages that an object may enter now."""

    def choose(self, stages: list[Stage], obj: Object) -> Stage:
        """One of several, by weight."""
