"""Records which component expands the volume of a claim that asks for more."""

from __future__ import annotations

from pinnace.client.client import Client
from pinnace.controllers.storage.local_path import NAME
from pinnace.controllers.storage.volumes import PROVISIONED_BY, annotations_of, wanted_size
from pinnace.model import quantity
from pinnace.model.objects import Key, Object
from pinnace.model.typed_objects import PersistentVolume, PersistentVolumeClaim
from pinnace.reconcile.controller import Controller
from pinnace.reconcile.manager import Manager

_COMPONENT = "volume_expand"


class Expansion:
    """Provisioners expand their own volumes; this controller only tells the user to wait for them."""

    def __init__(self, manager: Manager, client: Client) -> None:
        self._client = client
        self._recorder = manager.recorder
        self._claims = manager.cache(PersistentVolumeClaim)
        self._volumes = manager.cache(PersistentVolume)
        self.controller = Controller("persistentvolume-expander", self._reconcile)
        self.controller.for_(PersistentVolumeClaim, when=_asks_for_more)

    async def _reconcile(self, key: Key) -> None:
        claim = self._claims.get(key)
        if claim is None or not _asks_for_more(None, claim):
            return
        volume = self._volumes.get(Key("", claim["spec"]["volumeName"]))
        if volume is None or (volume["spec"].get("claimRef") or {}).get("uid") != claim["metadata"]["uid"]:
            return
        if annotations_of(volume).get(PROVISIONED_BY) != NAME:
            text = "waiting for an external controller to expand this PVC"
            self._recorder.record(claim, "Normal", "ExternalExpanding", text, component=_COMPONENT)


def _asks_for_more(old: Object | None, new: PersistentVolumeClaim | None) -> bool:
    if new is None or not new["spec"].get("volumeName"):
        return False
    if old is not None and old["spec"] == new["spec"]:
        return False
    status = new.get("status") or {}
    has = (status.get("capacity") or {}).get("storage")
    return status.get("phase") == "Bound" and has is not None and wanted_size(new) > quantity.parse(has)
