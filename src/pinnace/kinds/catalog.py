"""Every built-in resource of one Kubernetes minor version, in the order of discovery."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pinnace.kinds import (
    apiregistration,
    authentication,
    authorization,
    coordination,
    discovery,
    flowcontrol,
    internal,
    node,
    policy,
    rbac,
    scheduling,
    storage,
    storagemigration,
)
from pinnace.kinds.admissionregistration import resources as admissionregistration
from pinnace.kinds.apiextensions import resources as apiextensions
from pinnace.kinds.apps import resources as apps
from pinnace.kinds.autoscaling import resources as autoscaling
from pinnace.kinds.batch import resources as batch
from pinnace.kinds.certificates import resources as certificates
from pinnace.kinds.core import resources as core
from pinnace.kinds.definitions import Definitions
from pinnace.kinds.feature_gates.gates import FeatureGates
from pinnace.kinds.networking import resources as networking
from pinnace.kinds.pods import eviction_requests
from pinnace.kinds.resource import resources as resource
from pinnace.kinds.rows import Row, Version, kind_of
from pinnace.kinds.rows import resource as resource_of
from pinnace.kinds.runtime_config import RuntimeConfig
from pinnace.model.resources import Resource, version_rank

ROWS: tuple[Row, ...] = (
    *core.ROWS,
    *apiregistration.ROWS,
    *apps.ROWS,
    *authentication.ROWS,
    *authorization.ROWS,
    *autoscaling.ROWS,
    *batch.ROWS,
    *certificates.ROWS,
    *networking.ROWS,
    *policy.ROWS,
    *rbac.ROWS,
    *storage.ROWS,
    *admissionregistration.ROWS,
    *apiextensions.ROWS,
    *scheduling.ROWS,
    *coordination.ROWS,
    *node.ROWS,
    *discovery.ROWS,
    *resource.ROWS,
    *flowcontrol.ROWS,
    *storagemigration.ROWS,
    *internal.ROWS,
    *eviction_requests.ROWS,
)

GROUP_ORDER = (
    "",
    "apiregistration.k8s.io",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
    "resource.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "storagemigration.k8s.io",
    "internal.apiserver.k8s.io",
    "lifecycle.k8s.io",
    # Last, because it has only old versions, which clients must not prefer.
    "extensions",
)
"""The order of Kubernetes: clients take the first group that has a resource of the name."""


def resources(
    definitions: Definitions,
    *,
    old_versions: bool = True,
    runtime_config: RuntimeConfig | None = None,
    gates: FeatureGates | None = None,
) -> list[Resource]:
    """Return every resource that this minor version serves: current versions first, each group's preferred version
    before its others.

    `old_versions` are versions that Kubernetes has removed. Without `gates`, kinds whose feature gate is off are there.
    """
    config = runtime_config or RuntimeConfig()
    known_gates = gates or FeatureGates(definitions.minor)
    served = [
        (resource_of(row, version, stored, definitions, known_gates), version)
        for row in ROWS
        for version, stored in _versions(row, definitions)
        if (gates is None or not row.gate or gates.is_on(row.gate))
        and _is_served(row, version, definitions, old_versions=old_versions, config=config)
    ]
    served.sort(key=lambda pair: _rank(pair[0], pair[1], definitions))
    return [resource_ if old_versions else replace(resource_, modernize=None) for resource_, _ in served]


def check_runtime_config(config: RuntimeConfig, definitions: Definitions) -> None:
    """Refuse APIs that this minor version does not have. Raise InvalidRuntimeConfig."""
    config.check([_group_version(row, version) for row in ROWS for version, _ in _versions(row, definitions)])


def _versions(row: Row, definitions: Definitions) -> Iterator[tuple[Version, Version]]:
    """Yield the versions of a row in this minor version, each with the stored one; none if the kind does not exist."""
    stored = next((version for version in row.versions if definitions.name_of_kind(kind_of(row, version))), None)
    if stored is None:
        return
    for version in row.versions:
        if version.is_old or definitions.name_of_kind(kind_of(row, version)) is not None:
            yield version, stored


def _is_served(
    row: Row, version: Version, definitions: Definitions, *, old_versions: bool, config: RuntimeConfig
) -> bool:
    kind = kind_of(row, version)
    if version.is_old and definitions.name_of_kind(kind) is None:
        return old_versions and config.serves(kind.group, kind.version, row.plural, by_default=True)
    return config.serves(kind.group, kind.version, row.plural, by_default=version.is_on)


def _group_version(row: Row, version: Version) -> str:
    kind = kind_of(row, version)
    return f"{kind.group or 'core'}/{kind.version}"


def _rank(
    served: Resource, version: Version, definitions: Definitions
) -> tuple[bool, int, tuple[int, int, int, str], str]:
    is_old = version.is_old and definitions.name_of_kind(served.kind) is None
    return is_old, GROUP_ORDER.index(served.group), version_rank(served.version), served.plural
