"""Checks whether a volume can be reclaimed when its claim is gone."""

from __future__ import annotations

from pinnace.controllers.storage.volumes import PROVISIONED_BY, annotations_of
from pinnace.model.objects import Object


def reclaim_failure(volume: Object) -> tuple[str, str] | None:
    """Return the reason and the message of the Event for a volume that cannot be reclaimed; None without failure.

    A volume that a provisioner has created is deleted by that provisioner. No other deleter and no recycler exists.
    """
    match volume["spec"].get("persistentVolumeReclaimPolicy") or "Retain":
        case "Retain":
            return None
        case "Recycle":
            return "VolumeFailedRecycle", "No recycler plugin found for the volume!"
        case "Delete":
            if PROVISIONED_BY in annotations_of(volume):
                return None
            name = volume["metadata"]["name"]
            text = f'error getting deleter volume plugin for volume "{name}": no deletable volume plugin matched'
            return "VolumeFailedDelete", text
        case _:
            return "VolumeUnknownReclaimPolicy", "Volume has unrecognized PersistentVolumeReclaimPolicy"
