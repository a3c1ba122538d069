"""The annotations and names that tie a Deployment to the ReplicaSets of its revisions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pinnace.controllers.workloads.revisions import template_hash
from pinnace.model.objects import AnyObject
from pinnace.model.typed_objects import Deployment, PodTemplateSpec, ReplicaSet, ReplicaSetSpec
from pinnace.reconcile.owners import owner_reference
from pinnace.schema.equality import equal_ignoring_empty
from pinnace.schema.golang.numbers import parse_int

REVISION = "deployment.kubernetes.io/revision"
REVISION_HISTORY = "deployment.kubernetes.io/revision-history"
DESIRED_REPLICAS = "deployment.kubernetes.io/desired-replicas"
MAX_REPLICAS = "deployment.kubernetes.io/max-replicas"
ROLLBACK_TO = "deprecated.deployment.rollback.to"
TEMPLATE_HASH = "pod-template-hash"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_OWN_TO_EACH = frozenset({_LAST_APPLIED, REVISION, REVISION_HISTORY, DESIRED_REPLICAS, MAX_REPLICAS, ROLLBACK_TO})
"""Annotations that are not copied between a Deployment and its ReplicaSets."""
_MOST_HISTORY = 2000
_LONGEST_NAME = 253
_INT32 = 2**31
_MOST_DIGITS = 40


def annotations_of(obj: AnyObject) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}


def revision_of(obj: ReplicaSet) -> int | None:
    """Return the revision number; 0 where there is none, None where it is no number."""
    text = annotations_of(obj).get(REVISION)
    return 0 if text is None else _int64(text)


def last_revision(sets: Iterable[ReplicaSet]) -> int:
    return max((revision_of(replica_set) or 0 for replica_set in sets), default=0)


def desired_replicas(replica_set: ReplicaSet) -> int | None:
    """Return the size of the Deployment when this ReplicaSet was last scaled."""
    return non_negative(replica_set, DESIRED_REPLICAS)


def non_negative(obj: ReplicaSet, annotation: str) -> int | None:
    text = annotations_of(obj).get(annotation, "")
    return parse_int(text, least=0, greatest=_INT32 - 1) if text[:1] not in ("+", "-") else None


def is_of_template(replica_set: ReplicaSet, deployment: Deployment) -> bool:
    """Whether a ReplicaSet has the template of the Deployment, its hash label aside."""
    return equal_ignoring_empty(
        without_hash(replica_set["spec"]["template"]), without_hash(deployment["spec"]["template"])
    )


def without_hash(template: PodTemplateSpec) -> PodTemplateSpec:
    metadata = template.get("metadata") or {}
    labels = {key: value for key, value in (metadata.get("labels") or {}).items() if key != TEMPLATE_HASH}
    return {**template, "metadata": {**metadata, "labels": labels}}


def replica_annotations(deployment: Deployment, most: int) -> dict[str, str]:
    """Return the annotations that a ReplicaSet gets when it is scaled. `most` is the wanted size with the surge."""
    return {DESIRED_REPLICAS: str(deployment["spec"]["replicas"]), MAX_REPLICAS: str(most)}


def synced_annotations(deployment: Deployment, replica_set: ReplicaSet, revision: int) -> dict[str, str]:
    """Return the annotations of the newest ReplicaSet that must change: copied ones, and its revision."""
    present = annotations_of(replica_set)
    changed = {
        key: value
        for key, value in annotations_of(deployment).items()
        if key not in _OWN_TO_EACH and present.get(key) != value
    }
    before = revision_of(replica_set)
    if before is None or before >= revision:
        return changed
    changed[REVISION] = str(revision)
    if REVISION in present:  # A revision that returns keeps its earlier numbers in the history annotation.
        history = _append(present.get(REVISION_HISTORY, ""), present[REVISION])
        if history != present.get(REVISION_HISTORY):
            changed[REVISION_HISTORY] = history
    return changed


def _append(history: str, revision: str) -> str:
    numbers = [*filter(None, history.split(",")), revision]
    while len(",".join(numbers)) > _MOST_HISTORY and len(numbers) > 1:
        numbers.pop(0)
    return ",".join(numbers)


def new_replica_set(deployment: Deployment, revision: int, most: int) -> ReplicaSet:
    """Return the ReplicaSet of the Deployment's template, without replicas. Its name follows from the template."""
    metadata, spec = deployment["metadata"], deployment["spec"]
    template_hash_value = template_hash(spec["template"], (deployment.get("status") or {}).get("collisionCount"))
    labels = {**(spec["template"]["metadata"].get("labels") or {}), TEMPLATE_HASH: template_hash_value}
    selector = spec["selector"]
    wanted: ReplicaSetSpec = {
        "replicas": 0,
        "selector": {
            **selector,
            "matchLabels": {**(selector.get("matchLabels") or {}), TEMPLATE_HASH: template_hash_value},
        },
        "template": {**spec["template"], "metadata": {**spec["template"]["metadata"], "labels": labels}},
    }
    if spec.get("minReadySeconds"):
        wanted["minReadySeconds"] = spec["minReadySeconds"]
    head = metadata["name"][: _LONGEST_NAME - 1 - len(template_hash_value)]
    copied = {key: value for key, value in annotations_of(deployment).items() if key not in _OWN_TO_EACH}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{head}-{template_hash_value}",
            "namespace": metadata["namespace"],
            "labels": labels,
            "annotations": {**copied, REVISION: str(revision), **replica_annotations(deployment, most)},
            "ownerReferences": [owner_reference(deployment)],
        },
        "spec": wanted,
    }


def rollback_to(deployment: Deployment) -> int | None:
    """Return the revision that the rollback of an old API version asks for; 0 is the one before this, None is none."""
    text = annotations_of(deployment).get(ROLLBACK_TO, "")
    return _int64(text) if text else None


def roll_back(deployment: Deployment, replica_set: ReplicaSet) -> Deployment:
    """Return the Deployment with the template and the annotations of an old revision."""
    own = {key: value for key, value in annotations_of(deployment).items() if key in _OWN_TO_EACH}
    copied = {key: value for key, value in annotations_of(replica_set).items() if key not in _OWN_TO_EACH}
    return {
        **deployment,
        "metadata": {**deployment["metadata"], "annotations": {**own, **copied}},
        "spec": {**deployment["spec"], "template": without_hash(replica_set["spec"]["template"])},
    }


def revision_before_last(sets: Sequence[ReplicaSet]) -> int:
    """Return the second highest revision; 0 if there is none."""
    numbers = sorted((revision_of(replica_set) or 0 for replica_set in sets), reverse=True)
    return numbers[1] if len(numbers) > 1 else 0


def _int64(text: str) -> int | None:
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None
