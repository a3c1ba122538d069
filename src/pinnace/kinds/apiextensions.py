"""Kinds that users define."""

from __future__ import annotations

from pinnace.kinds import definition_conversions, extension_rules
from pinnace.kinds.rows import STATUS, Row, Version, old

ROWS = (
    Row(
        group="apiextensions.k8s.io",
        name="CustomResourceDefinition",
        plural="customresourcedefinitions",
        short_names=("crd", "crds"),
        namespaced=False,
        categories=("api-extensions",),
        versions=(
            Version("v1", modernize=definition_conversions.modernize_definition),
            old(
                "v1beta1",
                deprecated="1.16",
                removed="1.22",
                replacement="apiextensions.k8s.io/v1",
                to_stored=definition_conversions.definition_to_v1,
                from_stored=definition_conversions.definition_from_v1,
                reshape=definition_conversions.old_definition,
            ),
        ),
        subresources=(STATUS,),
        strategy=extension_rules.CUSTOM_RESOURCE_DEFINITION,
    ),
)
