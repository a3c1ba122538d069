"""The names, labels and volumes that bind a pod to its ordinal in a StatefulSet."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pinnace.client.snapshots import Snapshot
from pinnace.controllers.workloads.ownership import Owned
from pinnace.controllers.workloads.pod_control import pod_from_template
from pinnace.controllers.workloads.revisions import POD_LABEL
from pinnace.model.typed_objects import Pod, PodSpec, StatefulSet, Volume

POD_NAME_LABEL = "statefulset.kubernetes.io/pod-name"
POD_INDEX_LABEL = "apps.kubernetes.io/pod-index"
_name_and_ordinal = re.compile(r"(.*)-([0-9]+)").fullmatch
_INT32 = 2**31


def ordinal_of(pod_name: str, set_name: str) -> int | None:
    """Return the ordinal of a pod; None if the pod does not belong to a set of this name."""
    match = _name_and_ordinal(pod_name)
    if match is None or match[1] != set_name or not match[2].isascii() or int(match[2]) >= _INT32:
        return None
    return int(match[2])


def ordinals(stateful_set: StatefulSet) -> range:
    """Return the ordinals that the set wants. It may have more than anything can hold: never walk through all."""
    start = (stateful_set["spec"].get("ordinals") or {}).get("start", 0)
    return range(start, min(start + stateful_set["spec"]["replicas"], _INT32))


def pod_name(stateful_set: StatefulSet, ordinal: int) -> str:
    return f"{stateful_set['metadata']['name']}-{ordinal}"


def new_pod(stateful_set: StatefulSet, ordinal: int, revision: str) -> Pod:
    """Return the pod of an ordinal, with its own name, host name, labels and claims."""
    name = pod_name(stateful_set, ordinal)
    pod = pod_from_template(stateful_set, stateful_set["spec"]["template"])
    metadata, spec = pod["metadata"], pod["spec"].copy()
    del metadata["generateName"]
    metadata["name"] = name
    metadata["labels"] = {**(metadata.get("labels") or {}), **identity_labels(name, ordinal), POD_LABEL: revision}
    spec["hostname"] = name
    if stateful_set["spec"].get("serviceName"):
        spec["subdomain"] = stateful_set["spec"]["serviceName"]
    claims = claim_names(stateful_set, ordinal)
    if claims:
        spec["volumes"] = volumes_with(claims, spec)
    return {**pod, "spec": spec}


def identity_labels(name: str, ordinal: int) -> dict[str, str]:
    return {POD_NAME_LABEL: name, POD_INDEX_LABEL: str(ordinal)}


def has_identity(pod: Owned) -> bool:
    """Whether a pod has its own name as a label, which a Service can select."""
    return pod.labels.get(POD_NAME_LABEL) == pod.key.name


def claim_names(stateful_set: StatefulSet, ordinal: int) -> dict[str, str]:
    """Return the names of the claims of an ordinal by the volumes that use them."""
    name = stateful_set["metadata"]["name"]
    templates = stateful_set["spec"].get("volumeClaimTemplates") or ()
    return {template["metadata"]["name"]: f"{template['metadata']['name']}-{name}-{ordinal}" for template in templates}


def volumes_with(claims: Mapping[str, str], spec: PodSpec) -> list[Volume]:
    """Return the volumes of a pod, with the set's claims in place of volumes of the same names."""
    own: list[Volume] = [
        {"name": name, "persistentVolumeClaim": {"claimName": claim}} for name, claim in claims.items()
    ]
    return [
        *own,
        *(volume for volume in spec.get("volumes") or () if volume["name"] not in claims),
    ]


def claimed_volumes(snapshot: Snapshot[Pod]) -> Mapping[str, str]:
    """Read the claims of a pod by volume. Use through `snapshot.derive(claimed_volumes)`."""
    volumes = snapshot.object["spec"].get("volumes") or ()
    return {
        volume["name"]: volume["persistentVolumeClaim"]["claimName"]
        for volume in volumes
        if volume.get("persistentVolumeClaim")
    }
