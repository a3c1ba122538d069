"""Validation of a pod's volumes: exactly one source each, and the rules of each source."""

from __future__ import annotations

import re
from collections.abc import Callable

from pinnace.kinds.pods.projections import validate_downward_file, validate_item, validate_projected
from pinnace.kinds.validation.fields import (
    dns_label,
    validate_dns_label,
    validate_mode,
    validate_no_backsteps,
    validate_relative_path,
    validate_required,
)
from pinnace.kinds.volumes.claims import validate_claim_spec
from pinnace.kinds.volumes.sources import validate_csi_driver_name
from pinnace.model import names
from pinnace.model.field_errors import FieldError, duplicate, forbidden, invalid, not_supported, required
from pinnace.model.metadata import validate_annotation
from pinnace.model.objects import Object
from pinnace.model.quantity import ZERO, parse
from pinnace.model.selectors import validate_label

SourceRule = Callable[[Object, str, list[FieldError]], None]

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


def validate_volume(volumes: list[Object], path: str, errs: list[FieldError], pod_name: str) -> dict[str, Object]:
    """Add errors; return the valid volumes by name, which containers may mount."""
    sound: dict[str, Object] = {}
    for index, volume in enumerate(volumes):
        where = f"{path}[{index}]"
        before = len(errs)
        name = volume.get("name", "")
        _validate_source(volume, where, errs, name, pod_name)
        if not name:
            errs.append(required(f"{where}.name"))
        elif wrong := dns_label(name):
            errs.extend(invalid(f"{where}.name", name, err) for err in wrong)
        if name in sound:
            errs.append(duplicate(f"{where}.name", name))
        if len(errs) == before:
            sound[name] = volume
        if pod_name and "persistentVolumeClaim" in volume:
            _validate_claim_of_ephemeral_volume(volume, volumes, where, errs, pod_name)
    return sound


def _validate_claim_of_ephemeral_volume(
    volume: Object, volumes: list[Object], path: str, errs: list[FieldError], pod_name: str
) -> None:
    claim = volume["persistentVolumeClaim"].get("claimName", "")
    if any("ephemeral" in other and claim == f"{pod_name}-{other.get('name', '')}" for other in volumes):
        detail = "must not reference a PVC that gets created for an ephemeral volume"
        errs.append(invalid(f"{path}.persistentVolumeClaim.claimName", claim, detail))


def _validate_source(volume: Object, path: str, errs: list[FieldError], name: str, pod_name: str) -> None:
    sources = [source for source in volume if source in _SOURCES]
    if not sources:
        errs.append(required(path, "must specify a volume type"))
        return
    if len(sources) > 1:
        sources.sort(key=_ORDER.__getitem__)
    chosen = sources[0]
    _SOURCES[chosen](volume[chosen], f"{path}.{_NAMES_WHEN_WRONG.get(chosen, chosen)}", errs)
    for extra in sources[1:]:
        shown = _NAMES_WHEN_MANY.get(extra, extra)
        errs.append(forbidden(f"{path}.{shown}", "may not specify more than 1 volume type"))
    if "iscsi" in volume:
        portal = volume["iscsi"].get("targetPortal", "")
        if "initiatorName" in volume["iscsi"] and len(f"{name}:{portal}") > 64:
            detail = (
                "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if "
                "iscsi.initiatorName is specified."
            )
            errs.append(invalid(f"{path}.name", name, detail))
    if chosen == "ephemeral" and pod_name and name:
        claim = f"{pod_name}-{name}"
        for err in names.dns_subdomain(claim):
            errs.append(invalid(f"{path}.name", name, f'PVC name "{claim}": {err}'))


def _empty_dir(source: Object, path: str, errs: list[FieldError]) -> None:
    if "sizeLimit" in source and parse(source["sizeLimit"]) < ZERO:
        errs.append(forbidden(f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity"))


def _host_path(source: Object, path: str, errs: list[FieldError]) -> None:
    if not source.get("path"):
        errs.append(required(f"{path}.path"))
        return
    errs += validate_no_backsteps(source["path"], f"{path}.path")
    if source.get("type", "") not in _HOST_PATH_TYPES:
        errs.append(not_supported(f"{path}.type", source["type"], _HOST_PATH_TYPES))


def _git_repo(source: Object, path: str, errs: list[FieldError]) -> None:
    errs += validate_required(source, ("repository",), path)
    errs += validate_relative_path(source.get("directory", ""), f"{path}.directory")


def _partition(source: Object, path: str, errs: list[FieldError]) -> None:
    if not 0 <= source.get("partition", 0) <= 255:
        errs.append(invalid(f"{path}.partition", source["partition"], "must be between 1 and 255, inclusive"))


def _gce_disk(source: Object, path: str, errs: list[FieldError]) -> None:
    errs += validate_required(source, ("pdName",), path)
    _partition(source, path, errs)


def _aws_disk(source: Object, path: str, errs: list[FieldError]) -> None:
    errs += validate_required(source, ("volumeID",), path)
    _partition(source, path, errs)


def _secret(source: Object, path: str, errs: list[FieldError]) -> None:
    if not source.get("secretName"):
        errs.append(required(f"{path}.secretName"))
    errs += validate_mode(source, "defaultMode", path)
    validate_item(source, path, errs)


def _config_map(source: Object, path: str, errs: list[FieldError]) -> None:
    if not source.get("name"):
        errs.append(required(f"{path}.name"))
    errs += validate_mode(source, "defaultMode", path)
    validate_item(source, path, errs)


def _nfs(source: Object, path: str, errs: list[FieldError]) -> None:
    errs += validate_required(source, ("server", "path"), path)
    if not source.get("path", "").startswith("/"):
        errs.append(invalid(f"{path}.path", source.get("path", ""), "must be an absolute path"))


def _iscsi(source: Object, path: str, errs: list[FieldError]) -> None:
    errs += validate_required(source, ("targetPortal", "iqn"), path)
    if source.get("iqn"):
        _validate_initiator(source["iqn"], f"{path}.iqn", errs)
    if not 0 <= source.get("lun", 0) <= 255:
        errs.append(invalid(f"{path}.lun", source["lun"], "must be between 0 and 255, inclusive"))
    if (source.get("chapAuthDiscovery") or source.get("chapAuthSession")) and "secretRef" not in source:
        errs.append(required(f"{path}.secretRef"))
    if "initiatorName" in source:
        _validate_initiator(source["initiatorName"], f"{path}.initiatorname", errs)


def _validate_initiator(value: str, path: str, errs: list[FieldError]) -> None:
    matches = _initiators.get(value[:3])
    if matches is None:
        errs.append(invalid(path, value, "must be valid format starting with iqn, eui, or naa"))
    elif not matches(value):
        errs.append(invalid(path, value, "must be valid format"))


def _flocker(source: Object, path: str, errs: list[FieldError]) -> None:
    name, uuid = source.get("datasetName", ""), source.get("datasetUUID", "")
    if not name and not uuid:
        errs.append(required(path, "one of datasetName and datasetUUID is required"))
    if name and uuid:
        errs.append(invalid(path, "resource", "datasetName and datasetUUID can not be specified simultaneously"))
    if "/" in name:
        errs.append(invalid(f"{path}.datasetName", name, "must not contain '/'"))


def _cinder(source: Object, path: str, errs: list[FieldError]) -> None:
    errs += validate_required(source, ("volumeID",), path)
    if source.get("secretRef") is not None:
        errs += validate_required(source["secretRef"], ("name",), f"{path}.secretRef")


def _quobyte(source: Object, path: str, errs: list[FieldError]) -> None:
    detail = "must be a host:port pair or multiple pairs separated by commas"
    registry = source.get("registry", "")
    if not registry:
        errs.append(required(f"{path}.registry", detail))
    elif len(source.get("tenant", "")) >= 65:
        errs.append(required(f"{path}.tenant", "must be a UUID and may not exceed a length of 64 characters"))
    else:
        for pair in registry.split(","):
            if pair.count(":") != 1 and not re.fullmatch(r"\[[^\]]*\]:[^:]*", pair):
                errs.append(invalid(f"{path}.registry", registry, detail))
    errs += validate_required(source, ("volume",), path)


def _fibre_channel(source: Object, path: str, errs: list[FieldError]) -> None:
    targets, wide_ids = source.get("targetWWNs"), source.get("wwids")
    if not targets and not wide_ids:
        errs.append(required(f"{path}.targetWWNs", "must specify either targetWWNs or wwids, but not both"))
    if targets and wide_ids:
        detail = "targetWWNs and wwids can not be specified simultaneously"
        errs.append(invalid(f"{path}.targetWWNs", targets, detail))
    if targets:
        if "lun" not in source:
            errs.append(required(f"{path}.lun", "lun is required if targetWWNs is specified"))
        elif not 0 <= source["lun"] <= 255:
            errs.append(invalid(f"{path}.lun", source["lun"], "must be between 0 and 255, inclusive"))


def _flex(source: Object, path: str, errs: list[FieldError]) -> None:
    errs += validate_required(source, ("driver",), path)
    for key in source.get("options", ()):
        domain = "." + key.split("/", 1)[0].lower()
        if domain.endswith((".kubernetes.io", ".k8s.io")):
            detail = "kubernetes.io and k8s.io namespaces are reserved"
            errs.append(invalid(f"{path}.options[{key}]", key, detail))


def _azure_disk(source: Object, path: str, errs: list[FieldError]) -> None:
    errs += validate_required(source, ("diskName", "diskURI"), path)
    for name, supported in (
        ("cachingMode", ("None", "ReadOnly", "ReadWrite")),
        ("kind", ("Dedicated", "Managed", "Shared")),
    ):
        if name in source and source[name] not in supported:
            errs.append(not_supported(f"{path}.{name}", source[name], supported))
    kind, uri = source.get("kind"), source.get("diskURI", "")
    managed = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
    blob = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
    if kind == "Managed" and not uri.startswith("/subscriptions/"):
        errs.append(not_supported(f"{path}.diskURI", uri, [managed]))
    if kind is not None and kind != "Managed" and not uri.startswith("https://"):
        errs.append(not_supported(f"{path}.diskURI", uri, [blob]))


def _storage_os(source: Object, path: str, errs: list[FieldError]) -> None:
    errs += validate_required(source, ("volumeName",), path)
    for name in ("volumeName", "volumeNamespace"):
        if source.get(name):
            errs += validate_dns_label(source[name], f"{path}.{name}")
    if source.get("secretRef") is not None:
        errs += validate_required(source["secretRef"], ("name",), f"{path}.secretRef")


def _downward_api(source: Object, path: str, errs: list[FieldError]) -> None:
    errs += validate_mode(source, "defaultMode", path)
    for file in source.get("items", ()):
        validate_downward_file(file, path, errs)


def _csi(source: Object, path: str, errs: list[FieldError]) -> None:
    errs.extend(validate_csi_driver_name(source.get("driver", ""), f"{path}.driver"))
    if "nodePublishSecretRef" in source:
        secret = source["nodePublishSecretRef"].get("name", "")
        if not secret:
            errs.append(required(f"{path}.nodePublishSecretRef.name"))
        else:
            errs.extend(invalid(f"{path}.name", secret, err) for err in names.dns_subdomain(secret))


def _ephemeral(source: Object, path: str, errs: list[FieldError]) -> None:
    template = source.get("volumeClaimTemplate")
    where = f"{path}.volumeClaimTemplate"
    if template is None:
        errs.append(required(where))
        return
    metadata = template.get("metadata", {})
    errs += validate_annotation(metadata.get("annotations") or {}, f"{where}.metadata.annotations")
    errs += validate_label(metadata.get("labels"), f"{where}.metadata.labels")
    for name, value in metadata.items():
        if value and name not in ("annotations", "labels"):
            errs.append(forbidden(f"{where}.metadata.{name}", "cannot be set"))
    errs.extend(validate_claim_spec(template.get("spec", {}), f"{where}.spec"))


def _image(source: Object, path: str, errs: list[FieldError]) -> None:
    if source.get("pullPolicy") not in ("Always", "IfNotPresent", "Never"):
        policy = source.get("pullPolicy", "")
        errs.append(not_supported(f"{path}.pullPolicy", policy, ["Always", "IfNotPresent", "Never"]))


def _require(*fields: str) -> SourceRule:
    def rule(source: Object, path: str, errs: list[FieldError]) -> None:
        errs += validate_required(source, fields, path)

    return rule


# In Kubernetes' order: the first of several sources counts.
_SOURCES: dict[str, SourceRule] = {
    "emptyDir": _empty_dir,
    "hostPath": _host_path,
    "gitRepo": _git_repo,
    "gcePersistentDisk": _gce_disk,
    "awsElasticBlockStore": _aws_disk,
    "secret": _secret,
    "nfs": _nfs,
    "iscsi": _iscsi,
    "glusterfs": _require("endpoints", "path"),
    "flocker": _flocker,
    "persistentVolumeClaim": _require("claimName"),
    "rbd": _require("monitors", "image"),
    "cinder": _cinder,
    "cephfs": _require("monitors"),
    "quobyte": _quobyte,
    "downwardAPI": _downward_api,
    "fc": _fibre_channel,
    "flexVolume": _flex,
    "configMap": _config_map,
    "azureFile": _require("secretName", "shareName"),
    "vsphereVolume": _require("volumePath"),
    "photonPersistentDisk": _require("pdID"),
    "portworxVolume": _require("volumeID"),
    "azureDisk": _azure_disk,
    "storageos": _storage_os,
    "projected": validate_projected,
    "scaleIO": _require("gateway", "system", "volumeName"),
    "csi": _csi,
    "ephemeral": _ephemeral,
    "image": _image,
}
_ORDER: dict[str, int] = {name: index for index, name in enumerate(_SOURCES)}
# Kubernetes misspells these in its messages.
_NAMES_WHEN_MANY = {"cephfs": "cephFS", "downwardAPI": "downwarAPI"}
_NAMES_WHEN_WRONG = {"gcePersistentDisk": "persistentDisk"}
