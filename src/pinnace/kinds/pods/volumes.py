"""What is wrong with a pod's volumes: exactly one source each, and every source's own rules."""

from __future__ import annotations

import re
from collections.abc import Callable

from pinnace.kinds.pods.projections import downward_file_faults, item_faults, projected_faults
from pinnace.kinds.validation.field_lists import (
    annotation_faults,
    dns_label,
    dns_label_faults,
    label_faults,
    mode_faults,
    needed,
    no_backsteps,
    relative_path_faults,
)
from pinnace.kinds.volumes.claims import claim_spec_faults
from pinnace.kinds.volumes.sources import csi_driver_name_faults
from pinnace.model import names
from pinnace.model.field_errors import Cause, duplicate, forbidden, invalid, not_supported, required
from pinnace.model.objects import Object
from pinnace.model.quantity import ZERO, parse

SourceRule = Callable[[Object, str, list[Cause]], None]

_HOST_PATH_TYPES = (
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
)
_initiators = {
    "iqn": re.compile(r"iqn\.\d{4}-\d{2}\.([A-Za-z0-9\-.]+)(:[^,;*&$|\s]+)\Z").search,
    "eui": re.compile(r"eui.[A-Za-z0-9]{16}").fullmatch,
    "naa": re.compile(r"naa.[A-Za-z0-9]{32}").fullmatch,
}


def volume_faults(volumes: list[Object], path: str, faults: list[Cause], pod_name: str) -> dict[str, Object]:
    """Adds the faults; returns the sound volumes by name, which are what containers may mount."""
    sound: dict[str, Object] = {}
    for index, volume in enumerate(volumes):
        where = f"{path}[{index}]"
        before = len(faults)
        name = volume.get("name", "")
        _source_faults(volume, where, faults, name, pod_name)
        if not name:
            faults.append(required(f"{where}.name"))
        elif wrong := dns_label(name):
            faults.extend(invalid(f"{where}.name", name, fault) for fault in wrong)
        if name in sound:
            faults.append(duplicate(f"{where}.name", name))
        if len(faults) == before:
            sound[name] = volume
        if pod_name and "persistentVolumeClaim" in volume:
            _claim_of_ephemeral_volume_faults(volume, volumes, where, faults, pod_name)
    return sound


def _claim_of_ephemeral_volume_faults(
    volume: Object, volumes: list[Object], path: str, faults: list[Cause], pod_name: str
) -> None:
    claim = volume["persistentVolumeClaim"].get("claimName", "")
    if any("ephemeral" in other and claim == f"{pod_name}-{other.get('name', '')}" for other in volumes):
        detail = "must not reference a PVC that gets created for an ephemeral volume"
        faults.append(invalid(f"{path}.persistentVolumeClaim.claimName", claim, detail))


def _source_faults(volume: Object, path: str, faults: list[Cause], name: str, pod_name: str) -> None:
    sources = [source for source in volume if source in _SOURCES]
    if not sources:
        faults.append(required(path, "must specify a volume type"))
        return
    if len(sources) > 1:
        sources.sort(key=_ORDER.__getitem__)
    chosen = sources[0]
    _SOURCES[chosen](volume[chosen], f"{path}.{_NAMES_WHEN_WRONG.get(chosen, chosen)}", faults)
    for extra in sources[1:]:
        shown = _NAMES_WHEN_MANY.get(extra, extra)
        faults.append(forbidden(f"{path}.{shown}", "may not specify more than 1 volume type"))
    if "iscsi" in volume:
        portal = volume["iscsi"].get("targetPortal", "")
        if "initiatorName" in volume["iscsi"] and len(f"{name}:{portal}") > 64:
            detail = (
                "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if "
                "iscsi.initiatorName is specified."
            )
            faults.append(invalid(f"{path}.name", name, detail))
    if chosen == "ephemeral" and pod_name and name:
        claim = f"{pod_name}-{name}"
        for fault in names.dns_subdomain(claim):
            faults.append(invalid(f"{path}.name", name, f'PVC name "{claim}": {fault}'))


def _empty_dir(source: Object, path: str, faults: list[Cause]) -> None:
    if "sizeLimit" in source and parse(source["sizeLimit"]) < ZERO:
        faults.append(forbidden(f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity"))


def _host_path(source: Object, path: str, faults: list[Cause]) -> None:
    if not source.get("path"):
        faults.append(required(f"{path}.path"))
        return
    no_backsteps(source["path"], f"{path}.path", faults)
    if source.get("type", "") not in _HOST_PATH_TYPES:
        faults.append(not_supported(f"{path}.type", source["type"], _HOST_PATH_TYPES))


def _git_repo(source: Object, path: str, faults: list[Cause]) -> None:
    needed(source, path, faults, "repository")
    relative_path_faults(source.get("directory", ""), f"{path}.directory", faults)


def _partition(source: Object, path: str, faults: list[Cause]) -> None:
    if not 0 <= source.get("partition", 0) <= 255:
        faults.append(invalid(f"{path}.partition", source["partition"], "must be between 1 and 255, inclusive"))


def _gce_disk(source: Object, path: str, faults: list[Cause]) -> None:
    needed(source, path, faults, "pdName")
    _partition(source, path, faults)


def _aws_disk(source: Object, path: str, faults: list[Cause]) -> None:
    needed(source, path, faults, "volumeID")
    _partition(source, path, faults)


def _secret(source: Object, path: str, faults: list[Cause]) -> None:
    if not source.get("secretName"):
        faults.append(required(f"{path}.secretName"))
    mode_faults(source, "defaultMode", path, faults)
    item_faults(source, path, faults)


def _config_map(source: Object, path: str, faults: list[Cause]) -> None:
    if not source.get("name"):
        faults.append(required(f"{path}.name"))
    mode_faults(source, "defaultMode", path, faults)
    item_faults(source, path, faults)


def _nfs(source: Object, path: str, faults: list[Cause]) -> None:
    needed(source, path, faults, "server", "path")
    if not source.get("path", "").startswith("/"):
        faults.append(invalid(f"{path}.path", source.get("path", ""), "must be an absolute path"))


def _iscsi(source: Object, path: str, faults: list[Cause]) -> None:
    needed(source, path, faults, "targetPortal", "iqn")
    if source.get("iqn"):
        _initiator_faults(source["iqn"], f"{path}.iqn", faults)
    if not 0 <= source.get("lun", 0) <= 255:
        faults.append(invalid(f"{path}.lun", source["lun"], "must be between 0 and 255, inclusive"))
    if (source.get("chapAuthDiscovery") or source.get("chapAuthSession")) and "secretRef" not in source:
        faults.append(required(f"{path}.secretRef"))
    if "initiatorName" in source:
        _initiator_faults(source["initiatorName"], f"{path}.initiatorname", faults)


def _initiator_faults(value: str, path: str, faults: list[Cause]) -> None:
    matches = _initiators.get(value[:3])
    if matches is None:
        faults.append(invalid(path, value, "must be valid format starting with iqn, eui, or naa"))
    elif not matches(value):
        faults.append(invalid(path, value, "must be valid format"))


def _flocker(source: Object, path: str, faults: list[Cause]) -> None:
    name, uuid = source.get("datasetName", ""), source.get("datasetUUID", "")
    if not name and not uuid:
        faults.append(required(path, "one of datasetName and datasetUUID is required"))
    if name and uuid:
        faults.append(invalid(path, "resource", "datasetName and datasetUUID can not be specified simultaneously"))
    if "/" in name:
        faults.append(invalid(f"{path}.datasetName", name, "must not contain '/'"))


def _cinder(source: Object, path: str, faults: list[Cause]) -> None:
    needed(source, path, faults, "volumeID")
    if source.get("secretRef") is not None:
        needed(source["secretRef"], f"{path}.secretRef", faults, "name")


def _quobyte(source: Object, path: str, faults: list[Cause]) -> None:
    detail = "must be a host:port pair or multiple pairs separated by commas"
    registry = source.get("registry", "")
    if not registry:
        faults.append(required(f"{path}.registry", detail))
    elif len(source.get("tenant", "")) >= 65:
        faults.append(required(f"{path}.tenant", "must be a UUID and may not exceed a length of 64 characters"))
    else:
        for pair in registry.split(","):
            if pair.count(":") != 1 and not re.fullmatch(r"\[[^\]]*\]:[^:]*", pair):
                faults.append(invalid(f"{path}.registry", registry, detail))
    needed(source, path, faults, "volume")


def _fibre_channel(source: Object, path: str, faults: list[Cause]) -> None:
    targets, wide_ids = source.get("targetWWNs"), source.get("wwids")
    if not targets and not wide_ids:
        faults.append(required(f"{path}.targetWWNs", "must specify either targetWWNs or wwids, but not both"))
    if targets and wide_ids:
        detail = "targetWWNs and wwids can not be specified simultaneously"
        faults.append(invalid(f"{path}.targetWWNs", targets, detail))
    if targets:
        if "lun" not in source:
            faults.append(required(f"{path}.lun", "lun is required if targetWWNs is specified"))
        elif not 0 <= source["lun"] <= 255:
            faults.append(invalid(f"{path}.lun", source["lun"], "must be between 0 and 255, inclusive"))


def _flex(source: Object, path: str, faults: list[Cause]) -> None:
    needed(source, path, faults, "driver")
    for key in source.get("options", ()):
        domain = "." + key.split("/", 1)[0].lower()
        if domain.endswith((".kubernetes.io", ".k8s.io")):
            detail = "kubernetes.io and k8s.io namespaces are reserved"
            faults.append(invalid(f"{path}.options[{key}]", key, detail))


def _azure_disk(source: Object, path: str, faults: list[Cause]) -> None:
    needed(source, path, faults, "diskName", "diskURI")
    for name, supported in (
        ("cachingMode", ("None", "ReadOnly", "ReadWrite")),
        ("kind", ("Dedicated", "Managed", "Shared")),
    ):
        if name in source and source[name] not in supported:
            faults.append(not_supported(f"{path}.{name}", source[name], supported))
    kind, uri = source.get("kind"), source.get("diskURI", "")
    managed = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
    blob = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
    if kind == "Managed" and not uri.startswith("/subscriptions/"):
        faults.append(not_supported(f"{path}.diskURI", uri, [managed]))
    if kind is not None and kind != "Managed" and not uri.startswith("https://"):
        faults.append(not_supported(f"{path}.diskURI", uri, [blob]))


def _storage_os(source: Object, path: str, faults: list[Cause]) -> None:
    needed(source, path, faults, "volumeName")
    for name in ("volumeName", "volumeNamespace"):
        if source.get(name):
            dns_label_faults(source[name], f"{path}.{name}", faults)
    if source.get("secretRef") is not None:
        needed(source["secretRef"], f"{path}.secretRef", faults, "name")


def _downward_api(source: Object, path: str, faults: list[Cause]) -> None:
    mode_faults(source, "defaultMode", path, faults)
    for file in source.get("items", ()):
        downward_file_faults(file, path, faults)


def _csi(source: Object, path: str, faults: list[Cause]) -> None:
    faults.extend(csi_driver_name_faults(source.get("driver", ""), f"{path}.driver"))
    if "nodePublishSecretRef" in source:
        secret = source["nodePublishSecretRef"].get("name", "")
        if not secret:
            faults.append(required(f"{path}.nodePublishSecretRef.name"))
        else:
            faults.extend(invalid(f"{path}.name", secret, fault) for fault in names.dns_subdomain(secret))


def _ephemeral(source: Object, path: str, faults: list[Cause]) -> None:
    template = source.get("volumeClaimTemplate")
    where = f"{path}.volumeClaimTemplate"
    if template is None:
        faults.append(required(where))
        return
    metadata = template.get("metadata", {})
    annotation_faults(metadata.get("annotations"), f"{where}.metadata.annotations", faults)
    label_faults(metadata.get("labels"), f"{where}.metadata.labels", faults)
    for name, value in metadata.items():
        if value and name not in ("annotations", "labels"):
            faults.append(forbidden(f"{where}.metadata.{name}", "cannot be set"))
    faults.extend(claim_spec_faults(template.get("spec", {}), f"{where}.spec"))


def _image(source: Object, path: str, faults: list[Cause]) -> None:
    if source.get("pullPolicy") not in ("Always", "IfNotPresent", "Never"):
        policy = source.get("pullPolicy", "")
        faults.append(not_supported(f"{path}.pullPolicy", policy, ["Always", "IfNotPresent", "Never"]))


def _needing(*fields: str) -> SourceRule:
    def rule(source: Object, path: str, faults: list[Cause]) -> None:
        needed(source, path, faults, *fields)

    return rule


# In the order in which Kubernetes looks: the first of several is the one that counts.
_SOURCES: dict[str, SourceRule] = {
    "emptyDir": _empty_dir,
    "hostPath": _host_path,
    "gitRepo": _git_repo,
    "gcePersistentDisk": _gce_disk,
    "awsElasticBlockStore": _aws_disk,
    "secret": _secret,
    "nfs": _nfs,
    "iscsi": _iscsi,
    "glusterfs": _needing("endpoints", "path"),
    "flocker": _flocker,
    "persistentVolumeClaim": _needing("claimName"),
    "rbd": _needing("monitors", "image"),
    "cinder": _cinder,
    "cephfs": _needing("monitors"),
    "quobyte": _quobyte,
    "downwardAPI": _downward_api,
    "fc": _fibre_channel,
    "flexVolume": _flex,
    "configMap": _config_map,
    "azureFile": _needing("secretName", "shareName"),
    "vsphereVolume": _needing("volumePath"),
    "photonPersistentDisk": _needing("pdID"),
    "portworxVolume": _needing("volumeID"),
    "azureDisk": _azure_disk,
    "storageos": _storage_os,
    "projected": projected_faults,
    "scaleIO": _needing("gateway", "system", "volumeName"),
    "csi": _csi,
    "ephemeral": _ephemeral,
    "image": _image,
}
_ORDER: dict[str, int] = {name: index for index, name in enumerate(_SOURCES)}
# Kubernetes misspells these in its messages.
_NAMES_WHEN_MANY = {"cephfs": "cephFS", "downwardAPI": "downwarAPI"}
_NAMES_WHEN_WRONG = {"gcePersistentDisk": "persistentDisk"}
