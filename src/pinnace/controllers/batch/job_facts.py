"""The fields of a Job that decide whether to reconcile it, decoded once for each version of the Job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from pinnace.client.snapshots import Snapshot
from pinnace.model.typed_objects import Job

BY_UID = "uid"
BY_OWNER = "owner"
OWN_NAME = "kubernetes.io/job-controller"
_ENDS = ("Complete", "Failed")


@dataclass(frozen=True, slots=True)
class JobFacts:
    uid: str
    owner_kind: str
    owner_name: str
    owner_uid: str
    """Its controller, such as a CronJob."""
    started: str
    end: str
    """Complete or Failed; empty before."""
    finished: str
    """When it ended."""
    completed: str
    is_manual: bool
    """Whether a user chose the selector."""
    is_foreign: bool
    """Whether another controller manages it."""
    ttl: int | None
    is_deleting: bool

    @property
    def is_finished(self) -> bool:
        return bool(self.end)


class _Owner(msgspec.Struct, gc=False):
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class _Metadata(msgspec.Struct, gc=False):
    uid: str = ""
    deletionTimestamp: str | None = None
    ownerReferences: Sequence[_Owner] | None = None


class _Condition(msgspec.Struct, gc=False):
    type: str = ""
    status: str = ""
    lastTransitionTime: str | None = None


class _Status(msgspec.Struct, gc=False):
    startTime: str | None = None
    completionTime: str | None = None
    conditions: Sequence[_Condition] | None = None


class _Spec(msgspec.Struct, gc=False):
    manualSelector: bool | None = None
    managedBy: str | None = None
    ttlSecondsAfterFinished: int | None = None


class _Job(msgspec.Struct, gc=False):
    metadata: _Metadata
    spec: _Spec
    status: _Status | None = None


_decoder = msgspec.json.Decoder(_Job)


def job_facts(snapshot: Snapshot[Job]) -> JobFacts:
    """Read the facts of a Job. Use through `snapshot.derive(job_facts)`."""
    job = _decoder.decode(snapshot.body)
    status = job.status or _Status()
    ended = next(
        (condition for condition in status.conditions or () if condition.type in _ENDS and condition.status == "True"),
        None,
    )
    owner = next((reference for reference in job.metadata.ownerReferences or () if reference.controller), _Owner())
    return JobFacts(
        uid=job.metadata.uid,
        owner_kind=owner.kind,
        owner_name=owner.name,
        owner_uid=owner.uid,
        started=status.startTime or "",
        end=ended.type if ended is not None else "",
        finished=(ended.lastTransitionTime or "") if ended is not None else "",
        completed=status.completionTime or "",
        is_manual=bool(job.spec.manualSelector),
        is_foreign=job.spec.managedBy not in (None, "", OWN_NAME),
        ttl=job.spec.ttlSecondsAfterFinished,
        is_deleting=job.metadata.deletionTimestamp is not None,
    )


def index_jobs(snapshot: Snapshot[Job]) -> Iterable[str]:
    """Jobs by uid; those whose selector a user chose also by namespace."""
    facts = snapshot.derive(job_facts)
    return (facts.uid, f"{snapshot.key.namespace}/manual") if facts.is_manual else (facts.uid,)


def index_jobs_by_owner(snapshot: Snapshot[Job]) -> Iterable[str]:
    """Jobs by the uid of their controller."""
    uid = snapshot.derive(job_facts).owner_uid
    return (uid,) if uid else ()
