"""Every built-in resource of one Kubernetes minor version, in the order of discovery."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from pinnace.kinds.admissionregistration import resources as admissionregistration
from pinnace.kinds.apiextensions import resources as apiextensions
from pinnace.kinds.apiregistration import resources as apiregistration
from pinnace.kinds.apps import resources as apps
from pinnace.kinds.authentication import resources as authentication
from pinnace.kinds.authorization import resources as authorization
from pinnace.kinds.autoscaling import resources as autoscaling
from pinnace.kinds.batch import resources as batch
from pinnace.kinds.certificates import resources as certificates
from pinnace.kinds.coordination import resources as coordination
from pinnace.kinds.core import resources as core
from pinnace.kinds.discovery import resources as discovery
from pinnace.kinds.flowcontrol import resources as flowcontrol
from pinnace.kinds.internal import resources as internal
from pinnace.kinds.networking import resources as networking
from pinnace.kinds.node import resources as node
from pinnace.kinds.policy import resources as policy
from pinnace.kinds.rbac import resources as rbac
from pinnace.kinds.resource import resources as resource
from pinnace.kinds.rows import DefinitionSource, Row, Version, kind_of
from pinnace.kinds.rows import resource as resource_of
from pinnace.kinds.scheduling import resources as scheduling
from pinnace.kinds.storage import resources as storage
from pinnace.kinds.storagemigration import resources as storagemigration
from pinnace.model.resources import Resource
from pinnace.model.version_order import version_rank

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
    # Last, because it has only old versions, which clients must not prefer.
    "extensions",
)
"""The order of Kubernetes: clients take the first group that has a resource of the name."""


def resources(
    definitions: DefinitionSource, *, old_versions: bool = True, on_request: Collection[str] = ()
) -> list[Resource]:
    """Return every resource that this minor version serves: current versions first, each group's preferred version
    before its others.

    `old_versions` are versions that Kubernetes has removed. `on_request` names group-versions that are off by default,
    such as "resource.k8s.io/v1beta2".
    """
    served = [
        (resource_of(row, version, stored, definitions), version)
        for row in ROWS
        for version, stored in _versions(row, definitions)
        if _is_served(row, version, definitions, old_versions=old_versions, on_request=on_request)
    ]
    served.sort(key=lambda pair: _rank(pair[0], pair[1], definitions))
    return [found if old_versions else replace(found, modernize=None) for found, _ in served]


def _versions(row: Row, definitions: DefinitionSource) -> Iterator[tuple[Version, Version]]:
    """Yield the versions of a row in this minor version, each with the stored one; none if the kind does not exist."""
    stored = next((version for version in row.versions if definitions.name_of_kind(kind_of(row, version))), None)
    if stored is None:
        return
    for version in row.versions:
        if version.is_old or definitions.name_of_kind(kind_of(row, version)) is not None:
            yield version, stored


def _is_served(
    row: Row, version: Version, definitions: DefinitionSource, *, old_versions: bool, on_request: Collection[str]
) -> bool:
    if version.is_old and definitions.name_of_kind(kind_of(row, version)) is None:
        return old_versions
    return version.is_on or kind_of(row, version).api_version in on_request


def _rank(
    found: Resource, version: Version, definitions: DefinitionSource
) -> tuple[bool, int, tuple[int, int, int, str], str]:
    is_old = version.is_old and definitions.name_of_kind(found.kind) is None
    return is_old, GROUP_ORDER.index(found.group), version_rank(found.version), found.plural
