"""The rows of device classes, claims, slices and taint rules."""

from __future__ import annotations

from pinnace.kinds import cells
from pinnace.kinds.resource import columns, conversion, slices, validation
from pinnace.kinds.rows import GA, STATUS, Row, on_request
from pinnace.kinds.selectable import fields

GROUP = "resource.k8s.io"
_BETA2 = on_request("v1beta2", deprecated="1.36", removed="1.39")

ROWS = (
    Row(
        group=GROUP,
        name="DeviceClass",
        plural="deviceclasses",
        columns=cells.NAME_AND_AGE,
        namespaced=False,
        versions=(GA, _BETA2, on_request("v1beta1", deprecated="1.35", removed="1.38"), on_request("v1alpha3")),
        strategy=validation.DEVICE_CLASS,
    ),
    Row(
        group=GROUP,
        name="ResourceClaim",
        plural="resourceclaims",
        columns=columns.RESOURCE_CLAIM,
        versions=(
            GA,
            _BETA2,
            on_request(
                "v1beta1",
                deprecated="1.35",
                removed="1.38",
                to_stored=conversion.claim_to_v1,
                from_stored=conversion.claim_from_v1,
            ),
            on_request("v1alpha3", to_stored=conversion.claim_to_v1, from_stored=conversion.claim_from_v1),
        ),
        subresources=(STATUS,),
        strategy=validation.RESOURCE_CLAIM,
    ),
    Row(
        group=GROUP,
        name="ResourceClaimTemplate",
        plural="resourceclaimtemplates",
        columns=cells.NAME_AND_AGE,
        versions=(
            GA,
            _BETA2,
            on_request(
                "v1beta1",
                deprecated="1.35",
                removed="1.38",
                to_stored=conversion.template_to_v1,
                from_stored=conversion.template_from_v1,
            ),
            on_request("v1alpha3", to_stored=conversion.template_to_v1, from_stored=conversion.template_from_v1),
        ),
        strategy=validation.RESOURCE_CLAIM_TEMPLATE,
    ),
    Row(
        group=GROUP,
        name="ResourceSlice",
        plural="resourceslices",
        columns=columns.RESOURCE_SLICE,
        namespaced=False,
        versions=(
            GA,
            _BETA2,
            on_request(
                "v1beta1",
                deprecated="1.35",
                removed="1.38",
                to_stored=conversion.slice_to_v1,
                from_stored=conversion.slice_from_v1,
            ),
            on_request("v1alpha3", to_stored=conversion.slice_to_v1, from_stored=conversion.slice_from_v1),
        ),
        selectable=fields("spec.nodeName", "spec.driver"),
        strategy=slices.RESOURCE_SLICE,
    ),
    Row(
        group=GROUP,
        name="DeviceTaintRule",
        plural="devicetaintrules",
        columns=columns.DEVICE_TAINT_RULE,
        namespaced=False,
        versions=(
            GA,
            on_request("v1beta2", deprecated="1.39", removed="1.42"),
            on_request("v1alpha3", deprecated="1.36", removed="1.39"),
        ),
        subresources=(STATUS,),
        strategy=validation.DEVICE_TAINT_RULE,
    ),
    Row(
        group=GROUP,
        name="ResourcePoolStatusRequest",
        plural="resourcepoolstatusrequests",
        columns=columns.RESOURCE_POOL_STATUS_REQUEST,
        namespaced=False,
        versions=(on_request("v1alpha3", deprecated="1.39", removed="1.42"),),
        subresources=(STATUS,),
    ),
)
