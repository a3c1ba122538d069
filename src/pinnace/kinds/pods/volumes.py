"""Validation of a pod's volumes: exactly one source each, and the rules of each source."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from pinnace.kinds.pods.projections import validate_downward_file, validate_item, validate_projected
from pinnace.kinds.validation.fields import (
    dns_label,
    validate_dns_label,
    validate_id,
    validate_mode,
    validate_relative_path,
    validate_required,
)
from pinnace.kinds.volumes.claims import validate_claim_spec
from pinnace.kinds.volumes.sources import SOURCES_BY_FIELD, validate_csi_driver_name
from pinnace.model import names
from pinnace.model.field_errors import FieldError, duplicate, forbidden, invalid, not_supported, required
from pinnace.model.metadata import validate_annotation
from pinnace.model.objects import AnyObject, Object
from pinnace.model.quantity import ZERO, parse
from pinnace.model.selectors import validate_label
from pinnace.model.typed_objects import (
    CinderVolumeSource,
    ConfigMapVolumeSource,
    CSIVolumeSource,
    DownwardAPIVolumeSource,
    EmptyDirVolumeSource,
    EphemeralVolumeSource,
    GitRepoVolumeSource,
    ImageVolumeSource,
    ISCSIVolumeSource,
    SecretVolumeSource,
    StorageOSVolumeSource,
    Volume,
)

SourceRule = Callable[[Any, str, list[FieldError]], None]

_initiators = {
    "iqn": re.compile(r"iqn\.\d{4}-\d{2}\.([A-Za-z0-9\-.]+)(:[^,;*&$|\s]+)\Z").search,
    "eui": re.compile(r"eui.[A-Za-z0-9]{16}").fullmatch,
    "naa": re.compile(r"naa.[A-Za-z0-9]{32}").fullmatch,
}


def validate_volume(volumes: list[Volume], path: str, errs: list[FieldError], pod_name: str) -> dict[str, Volume]:
    """Add errors; return the valid volumes by name, which containers may mount."""
    sound: dict[str, Volume] = {}
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
    volume: Volume, volumes: list[Volume], path: str, errs: list[FieldError], pod_name: str
) -> None:
    claim = volume["persistentVolumeClaim"].get("claimName", "")
    if any("ephemeral" in other and claim == f"{pod_name}-{other.get('name', '')}" for other in volumes):
        detail = "must not reference a PVC that gets created for an ephemeral volume"
        errs.append(invalid(f"{path}.persistentVolumeClaim.claimName", claim, detail))


def _validate_source(volume: AnyObject, path: str, errs: list[FieldError], name: str, pod_name: str) -> None:
    sources = [source for source in volume if source in _SOURCES]
    if not sources:
        errs.append(required(path, "must specify a volume type"))
        return
    if len(sources) > 1:
        sources.sort(key=_ORDER.__getitem__)
    chosen = sources[0]
    _SOURCES[chosen](volume[chosen], f"{path}.{_NAMES_WHEN_WRONG.get(chosen, chosen)}", errs)
    for extra in sources[1:]:
        display = _NAMES_WHEN_MANY.get(extra, extra)
        errs.append(forbidden(f"{path}.{display}", "may not specify more than 1 volume type"))
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


def _empty_dir(source: EmptyDirVolumeSource, path: str, errs: list[FieldError]) -> None:
    if "sizeLimit" in source and parse(source["sizeLimit"]) < ZERO:
        errs.append(forbidden(f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity"))
    if not 0 <= source.get("mode", 0) <= 0o1777:
        detail = "must be a number between 0 and 01777 (octal), both inclusive"
        errs.append(invalid(f"{path}.mode", source["mode"], detail))


def _git_repo(source: GitRepoVolumeSource, path: str, errs: list[FieldError]) -> None:
    errs += validate_required(source, ("repository",), path)
    errs += validate_relative_path(source.get("directory", ""), f"{path}.directory")


def _secret(source: SecretVolumeSource, path: str, errs: list[FieldError]) -> None:
    if not source.get("secretName"):
        errs.append(required(f"{path}.secretName"))
    errs += validate_mode(source, "defaultMode", path)
    errs += validate_id(source, "defaultUser", path)
    validate_item(source, path, errs)


def _config_map(source: ConfigMapVolumeSource, path: str, errs: list[FieldError]) -> None:
    if not source.get("name"):
        errs.append(required(f"{path}.name"))
    errs += validate_mode(source, "defaultMode", path)
    errs += validate_id(source, "defaultUser", path)
    validate_item(source, path, errs)


def _iscsi(source: ISCSIVolumeSource, path: str, errs: list[FieldError]) -> None:
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


def _cinder(source: CinderVolumeSource, path: str, errs: list[FieldError]) -> None:
    errs += validate_required(source, ("volumeID",), path)
    if source.get("secretRef") is not None:
        errs += validate_required(source["secretRef"], ("name",), f"{path}.secretRef")


def _storage_os(source: StorageOSVolumeSource, path: str, errs: list[FieldError]) -> None:
    errs += validate_required(source, ("volumeName",), path)
    for name in ("volumeName", "volumeNamespace"):
        if source.get(name):
            errs += validate_dns_label(source[name], f"{path}.{name}")
    if source.get("secretRef") is not None:
        errs += validate_required(source["secretRef"], ("name",), f"{path}.secretRef")


def _downward_api(source: DownwardAPIVolumeSource, path: str, errs: list[FieldError]) -> None:
    errs += validate_mode(source, "defaultMode", path)
    errs += validate_id(source, "defaultUser", path)
    for file in source.get("items", ()):
        validate_downward_file(file, path, errs)


def _csi(source: CSIVolumeSource, path: str, errs: list[FieldError]) -> None:
    errs.extend(validate_csi_driver_name(source.get("driver", ""), f"{path}.driver"))
    if "nodePublishSecretRef" in source:
        secret = source["nodePublishSecretRef"].get("name", "")
        if not secret:
            errs.append(required(f"{path}.nodePublishSecretRef.name"))
        else:
            errs.extend(invalid(f"{path}.name", secret, err) for err in names.dns_subdomain(secret))


def _ephemeral(source: EphemeralVolumeSource, path: str, errs: list[FieldError]) -> None:
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


def _image(source: ImageVolumeSource, path: str, errs: list[FieldError]) -> None:
    if source.get("pullPolicy") not in ("Always", "IfNotPresent", "Never"):
        policy = source.get("pullPolicy", "")
        errs.append(not_supported(f"{path}.pullPolicy", policy, ["Always", "IfNotPresent", "Never"]))


def _require(*fields: str) -> SourceRule:
    def rule(source: Object, path: str, errs: list[FieldError]) -> None:
        errs += validate_required(source, fields, path)

    return rule


def _as_in_volumes(field: str) -> SourceRule:
    """Return the rule for a source that persistent volumes have with the same rules."""
    source_type = SOURCES_BY_FIELD[field]

    def rule(source: Any, path: str, errs: list[FieldError]) -> None:
        errs += validate_required(source, source_type.required, path)
        errs.extend(source_type.errs(source, path))

    return rule


# In Kubernetes' order: the first of several sources counts.
_SOURCES: dict[str, SourceRule] = {
    "emptyDir": _empty_dir,
    "hostPath": _as_in_volumes("hostPath"),
    "gitRepo": _git_repo,
    "gcePersistentDisk": _as_in_volumes("gcePersistentDisk"),
    "awsElasticBlockStore": _as_in_volumes("awsElasticBlockStore"),
    "secret": _secret,
    "nfs": _as_in_volumes("nfs"),
    "iscsi": _iscsi,
    "glusterfs": _require("endpoints", "path"),
    "flocker": _as_in_volumes("flocker"),
    "persistentVolumeClaim": _require("claimName"),
    "rbd": _as_in_volumes("rbd"),
    "cinder": _cinder,
    "cephfs": _as_in_volumes("cephfs"),
    "quobyte": _as_in_volumes("quobyte"),
    "downwardAPI": _downward_api,
    "fc": _as_in_volumes("fc"),
    "flexVolume": _as_in_volumes("flexVolume"),
    "configMap": _config_map,
    "azureFile": _require("secretName", "shareName"),
    "vsphereVolume": _as_in_volumes("vsphereVolume"),
    "photonPersistentDisk": _as_in_volumes("photonPersistentDisk"),
    "portworxVolume": _as_in_volumes("portworxVolume"),
    "azureDisk": _as_in_volumes("azureDisk"),
    "storageos": _storage_os,
    "projected": validate_projected,
    "scaleIO": _as_in_volumes("scaleIO"),
    "csi": _csi,
    "ephemeral": _ephemeral,
    "image": _image,
}
_ORDER: dict[str, int] = {name: index for index, name in enumerate(_SOURCES)}
# Kubernetes misspells these in its messages.
_NAMES_WHEN_MANY = {"cephfs": "cephFS", "downwardAPI": "downwarAPI"}
_NAMES_WHEN_WRONG = {"gcePersistentDisk": "persistentDisk"}
