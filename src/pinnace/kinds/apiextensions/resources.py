"""The row of custom resource definitions."""

from __future__ import annotations

from pinnace.kinds.apiextensions import conversion, validation
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
            Version("v1", modernize=conversion.modernize_definition),
            old(
                "v1beta1",
                deprecated="1.16",
                removed="1.22",
                replacement="apiextensions.k8s.io/v1",
                to_stored=conversion.definition_to_v1,
                from_stored=conversion.definition_from_v1,
                reshape=conversion.old_definition,
            ),
        ),
        subresources=(STATUS,),
        strategy=validation.CUSTOM_RESOURCE_DEFINITION,
    ),
)
