"""The audiences that a node may request tokens for: those of its pods' volumes, and those that a role permits."""

from __future__ import annotations

from collections.abc import Iterator

from pinnace.admission.permissions import Permissions
from pinnace.model.typed_objects import PersistentVolumeSpec, Pod, Volume
from pinnace.model.watched_objects import WatchedObjects
from pinnace.model.write_review import Review

VERB = "request-serviceaccounts-token-audience"
_DRIVERS = {
    "awsElasticBlockStore": "ebs.csi.aws.com",
    "azureDisk": "disk.csi.azure.com",
    "azureFile": "file.csi.azure.com",
    "cinder": "cinder.csi.openstack.org",
    "gcePersistentDisk": "pd.csi.storage.gke.io",
    "portworxVolume": "pxd.portworx.com",
    "vsphereVolume": "csi.vsphere.vmware.com",
}
"""The in-tree volumes that CSI drivers serve, and these drivers."""


class _Missing(Exception):
    """An object that a volume refers to does not exist, so its audiences are unknown."""


class TokenAudiences:
    def __init__(
        self, *, claims: WatchedObjects, volumes: WatchedObjects, drivers: WatchedObjects, permissions: Permissions
    ) -> None:
        self._claims = claims
        self._volumes = volumes
        self._drivers = drivers
        self._permissions = permissions

    async def check(self, review: Review, pod: Pod) -> None:
        """Refuse a token of the pod's account that is for others. Raise Forbidden."""
        audiences = (review.changed.get("spec") or {}).get("audiences") or [""]
        if len(audiences) > 1:
            raise review.forbidden("node may only request 0 or 1 audiences")
        audience = audiences[0]
        try:
            if self._is_named(pod, audience):
                return
        except _Missing as err:
            raise review.forbidden(f'error validating audience "{audience}": {err}') from None
        denied = await self._permissions.forbidden_error(
            review.user,
            VERB,
            group="",
            resource=audience or "-",  # A question about no resource is not one about a path.
            namespace=review.namespace,
            name=review.name,
        )
        if denied:
            why = f"{review.user.name} is not authorized to request tokens for this audience"
            raise review.forbidden(f'audience "{audience}" not found in pod spec volume, {why}')

    def _is_named(self, pod: Pod, audience: str) -> bool:
        errs = []
        for volume in (pod.get("spec") or {}).get("volumes") or ():
            if audience in _projected_audiences(volume):
                return True
            try:
                driver = self._driver_of(pod, volume)
                if driver and audience in self._requested_by(driver):
                    return True
            except _Missing as err:
                errs.append(str(err))
        if errs:
            errs = list(dict.fromkeys(errs))
            raise _Missing(errs[0] if len(errs) == 1 else f"[{', '.join(errs)}]")
        return False

    def _driver_of(self, pod: Pod, volume: Volume) -> str:
        if (volume.get("ephemeral") or {}).get("volumeClaimTemplate") is not None:
            return self._driver_of_claim(pod, f"{pod['metadata']['name']}-{volume['name']}")
        if (claim := volume.get("persistentVolumeClaim")) is not None:
            return self._driver_of_claim(pod, claim.get("claimName", ""))
        return _driver_in(volume)

    def _driver_of_claim(self, pod: Pod, name: str) -> str:
        claim = self._claims.get(f"{pod['metadata']['namespace']}/{name}")
        if claim is None:
            raise _Missing(f'persistentvolumeclaim "{name}" not found')
        bound = (claim.get("spec") or {}).get("volumeName", "")
        volume = self._volumes.get(bound)
        if volume is None:
            raise _Missing(f'persistentvolume "{bound}" not found')
        return _driver_in(volume.get("spec") or {})

    def _requested_by(self, driver: str) -> Iterator[str]:
        declared = self._drivers.get(driver)
        if declared is None:
            raise _Missing(f'csidriver.storage.k8s.io "{driver}" not found')
        return (request.get("audience", "") for request in (declared.get("spec") or {}).get("tokenRequests") or ())


def _projected_audiences(volume: Volume) -> Iterator[str]:
    for source in (volume.get("projected") or {}).get("sources") or ():
        if (token := source.get("serviceAccountToken")) is not None:
            yield token.get("audience", "")


def _driver_in(volume: Volume | PersistentVolumeSpec) -> str:
    if (csi := volume.get("csi")) is not None:
        return str(csi.get("driver", ""))
    return next((driver for field, driver in _DRIVERS.items() if volume.get(field) is not None), "")
