"""The rows of storage classes, attachments and CSI kinds."""

from __future__ import annotations

from pinnace.kinds.rows import GA, STATUS, Row, Version, old, on_request
from pinnace.kinds.storage import columns, validation

GROUP = "storage.k8s.io"
_V1 = "storage.k8s.io/v1"
_BETA = old("v1beta1", deprecated="1.19", removed="1.22", replacement=_V1)

ROWS = (
    Row(
        group=GROUP,
        name="CSIDriver",
        plural="csidrivers",
        columns=columns.CSI_DRIVER,
        namespaced=False,
        versions=(GA, _BETA),
        strategy=validation.CSI_DRIVER,
    ),
    Row(
        group=GROUP,
        name="CSINode",
        plural="csinodes",
        columns=columns.CSI_NODE,
        namespaced=False,
        versions=(GA, old("v1beta1", deprecated="1.17", removed="1.22", replacement=_V1)),
        strategy=validation.CSI_NODE,
    ),
    Row(
        group=GROUP,
        name="CSIStorageCapacity",
        plural="csistoragecapacities",
        # Older than the rule that betas are off; 1.25 and 1.26 have it.
        versions=(GA, Version("v1beta1", deprecated="1.24", removed="1.27", replacement=_V1)),
        strategy=validation.CSI_STORAGE_CAPACITY,
    ),
    Row(
        group=GROUP,
        name="StorageClass",
        plural="storageclasses",
        columns=columns.STORAGE_CLASS,
        short_names=("sc",),
        namespaced=False,
        versions=(GA, _BETA),
        strategy=validation.STORAGE_CLASS,
    ),
    Row(
        group=GROUP,
        name="VolumeAttachment",
        plural="volumeattachments",
        columns=columns.VOLUME_ATTACHMENT,
        namespaced=False,
        versions=(
            GA,
            old("v1beta1", deprecated="1.19", removed="1.22", replacement=_V1, subresources=()),
        ),
        subresources=(STATUS,),
        strategy=validation.VOLUME_ATTACHMENT,
    ),
    Row(
        group=GROUP,
        name="VolumeAttributesClass",
        plural="volumeattributesclasses",
        columns=columns.VOLUME_ATTRIBUTES_CLASS,
        short_names=("vac",),
        namespaced=False,
        versions=(
            GA,
            on_request("v1beta1", deprecated="1.34", removed="1.37", replacement=_V1),
            on_request("v1alpha1", deprecated="1.32", removed="1.35", replacement=_V1),
        ),
        strategy=validation.VOLUME_ATTRIBUTES_CLASS,
    ),
)
