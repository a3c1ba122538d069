"""Kinds that users define."""

from __future__ import annotations

from pinnace.kinds import extension_rules
from pinnace.kinds.rows import GA, STATUS, Row

ROWS = (
    Row(
        group="apiextensions.k8s.io",
        name="CustomResourceDefinition",
        plural="customresourcedefinitions",
        short_names=("crd", "crds"),
        namespaced=False,
        categories=("api-extensions",),
        versions=(GA,),
        subresources=(STATUS,),
        strategy=extension_rules.CUSTOM_RESOURCE_DEFINITION,
    ),
)
