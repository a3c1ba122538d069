"""The interfaces of stages: a stage has a delay and effects; a life decides which stages an object may enter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from pinnace.client.client import Client
from pinnace.client.writing import PatchForm
from pinnace.model.objects import Object
from pinnace.model.typed_objects import Pod


class InvalidStage(ValueError):
    """A stage is invalid. The message names the file and the stage."""


class InvalidUsage(ValueError):
    """A file of recorded usage, or a usage object, is invalid. The message says where, and what was expected."""

    usage: Mapping[str, Any] = MappingProxyType({})
    """The usage object, if it was found during an evaluation."""


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
Staged = Any
"""A Pod or a Node, as the stages are those of pods or of nodes."""


class StageContext(Protocol):
    """The time, and the addresses of nodes and pods, for the effects of stages."""

    @property
    def now(self) -> str:
        """The time in RFC 3339."""

    def kubelet(self, node: str) -> Client:
        """Return the client of a node, with the rights of that node."""

    def host_ips(self, node: str) -> Sequence[str]: ...

    def node_ip(self, node: str) -> str:
        """Return the address of a node; allocate one if it has none."""

    def pod_ips(self, pod: Pod) -> Sequence[str]:
        """Return the addresses of a pod: its own, allocated at the first call, or its node's on the host network."""


class Stage(Protocol):
    """One stage of a pod or node."""

    @property
    def name(self) -> str: ...

    @property
    def is_followed_at_once(self) -> bool:
        """Whether the next stage is chosen from the answer to this one's write, without waiting for the watch."""

    @property
    def is_mergeable(self) -> bool:
        """Whether a status that the next stage replaces without delay need not be written."""

    def delay(self, obj: Staged, now: datetime) -> float:
        """Return the seconds between entering the stage and its effects."""

    def effects(self, obj: Staged, context: StageContext) -> Iterable[Effect]:
        """Return the writes of this stage, in order."""


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


class SimulatedPodHead(msgspec.Struct, gc=False):
    """The part of an encoded pod that decides whether it has to be decoded."""

    metadata: _Metadata
    spec: _Spec
    status: _Status = msgspec.field(default_factory=_Status)

    @property
    def is_of_job(self) -> bool:
        return any(owner.kind == "Job" for owner in self.metadata.ownerReferences or ())


decode_head = msgspec.json.Decoder(SimulatedPodHead).decode


class Life(Protocol):
    """The stages of the pods of simulated nodes, or of the nodes."""

    def concerns(self, head: SimulatedPodHead) -> bool:
        """Whether a pod may enter a stage now. Called for every change of a pod: it must be cheap."""

    def stages_of(self, obj: Staged) -> list[Stage]:
        """Return the stages that an object may enter now."""

    def choose(self, stages: list[Stage], obj: Staged) -> Stage:
        """Choose one of several stages by weight."""
