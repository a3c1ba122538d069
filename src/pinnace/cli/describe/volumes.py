"""Descriptions of volume sources, of pods and of PersistentVolumes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pinnace.cli.describe.parts import NONE, UNSET, Description
from pinnace.cli.kubectl.formats import format_value
from pinnace.model import quantity
from pinnace.model.objects import Object

Lines = list[tuple[str, object]]
Field = tuple[str, str, object]
"""A title, its field, and the value that is printed if the field is not set."""

_LONG_ATTRIBUTE = 140
_WITHOUT_COLON = "ISCSIInterface"  # As kubectl has it.


def volumes(page: Description, listed: Iterable[Object], *, indent: str = "") -> None:
    listed = list(listed)
    if not listed:
        page.line(f"{indent}Volumes:\t{NONE}")
        return
    page.line(f"{indent}Volumes:")
    for volume in listed:
        page.line(f"{' ' if indent else ''}{volume['name']}:", 1)
        kind = next((name for name in volume if name != "name"), "emptyDir")
        source(page, kind, volume.get(kind) or {})


def source(page: Description, kind: str, content: Object, *, is_persistent: bool = False) -> None:
    """Describe the source of a volume."""
    text = _OF_PERSISTENT.get(kind) if is_persistent else None
    title, fields = text or _KNOWN.get(kind, ("", ()))
    if not title:
        page.line("<unknown>", 1)
        return
    page.pair("Type", title, 2)
    lines = fields(content) if callable(fields) else _read(content, fields, is_persistent=is_persistent)
    for heading, value in lines:
        page.pair(heading, value, 2) if heading else page.line(str(value), 2)


def origin(spec: Object) -> list[str]:
    """Return the lines of the data source of a claim."""
    data_source = spec.get("dataSource")
    if not data_source:
        return []
    fields = (("APIGroup", "apiGroup"), ("Kind", "kind"), ("Name", "name"))
    return ["DataSource:", *(f"  {title}:\t{data_source[field]}" for title, field in fields if data_source.get(field))]


def _read(content: Object, fields: Iterable[Field], *, is_persistent: bool) -> Lines:
    lines: Lines = []
    for title, path, otherwise in fields:
        value: Any = content
        for step in path.split("."):
            value = (value or {}).get(step)
        if path == "secretRef" and value is not None:
            value = _reference(value, is_persistent=is_persistent)
        text = format_value(otherwise if value is None else value)
        lines.append(("", f"{title}\t{text}") if title == _WITHOUT_COLON else (title, text))
    return lines


def _reference(secret: Object, *, is_persistent: bool) -> str:
    """Return a reference as Go prints it: a cluster-scoped volume names the namespace of its Secret."""
    name, namespace = secret.get("name", ""), secret.get("namespace", "")
    if is_persistent:
        return f"&SecretReference{{Name:{name},Namespace:{namespace},}}"
    return f"&LocalObjectReference{{Name:{name},}}"


def _empty_dir(source: Object) -> Lines:
    limit = source.get("sizeLimit")
    is_limited = limit is not None and quantity.parse(limit).milli_value > 0
    return [("Medium", source.get("medium", "")), ("SizeLimit", limit if is_limited else UNSET)]


def _fibre_channel(source: Object) -> Lines:
    names = ("TargetWWNs", ", ".join(source.get("targetWWNs") or ()))
    return [names, *_read(source, (("LUN", "lun", NONE), _FS_TYPE, _READ_ONLY), is_persistent=False)]


def _csi(source: Object) -> Lines:
    lines: Lines = [
        ("Driver", source.get("driver", "")),
        ("FSType", source.get("fsType", "")),
        *([("VolumeHandle", source["volumeHandle"])] if "volumeHandle" in source else []),
        ("ReadOnly", format_value(bool(source.get("readOnly")))),
    ]
    attributes = source.get("volumeAttributes") or {}
    text = [_shorten(f"{key}={attributes[key]}") for key in sorted(attributes)] or [NONE]
    lines.append(("VolumeAttributes", "    " + text[0] if attributes else text[0]))
    return lines + [("", f"\t    {line}") for line in text[1:]]


def _shorten(attribute: str) -> str:
    return attribute if len(attribute) <= _LONG_ATTRIBUTE else attribute[:_LONG_ATTRIBUTE] + "..."


def _downward(source: Object) -> Lines:
    lines: Lines = [("", "Items:")]
    for item in source.get("items") or ():
        reference = item.get("fieldRef") or {}
        named = reference.get("fieldPath") or (item.get("resourceFieldRef") or {}).get("resource")
        lines.append(("", f"  {named} -> {item['path']}"))
    return lines


def _projected(source: Object) -> Lines:
    lines: Lines = []
    for projection in source.get("sources") or ():
        if "secret" in projection:
            lines += _read(projection["secret"], (("SecretName", "name", ""), _OPTIONAL), is_persistent=False)
        elif "downwardAPI" in projection:
            lines.append(("DownwardAPI", "true"))
        elif "configMap" in projection:
            lines += _read(projection["configMap"], (("ConfigMapName", "name", ""), _OPTIONAL), is_persistent=False)
        elif "serviceAccountToken" in projection:
            lines.append(("TokenExpirationSeconds", projection["serviceAccountToken"].get("expirationSeconds", 0)))
    return lines


def _ephemeral(source: Object) -> Lines:
    """Describe the claim of an ephemeral volume. Its values stand where kubectl's nested writer puts them."""
    template = source.get("volumeClaimTemplate")
    if template is None:
        return []
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    return [
        ("StorageClass", spec.get("storageClassName", "")),
        ("Volume", spec.get("volumeName", "")),
        *_below("Labels", [f"{key}={labels[key]}" for key in sorted(labels)]),
        *_below("Annotations", [f"{key}: {annotations[key]}" for key in sorted(annotations)]),
        ("Capacity", "0" if spec.get("volumeName") else ""),
        ("Access Modes", ""),
        *([("VolumeMode", spec["volumeMode"])] if spec.get("volumeMode") else []),
        *(("", line) for line in origin(spec)),
    ]


def _below(title: str, values: list[str]) -> Lines:
    first, *rest = values or [NONE]
    return [(title, f"    {first}"), *(("", f"    \t    {value}") for value in rest)]


_FS_TYPE: Field = ("FSType", "fsType", "")
_OPTIONAL: Field = ("Optional", "optional", False)
_PARTITION: Field = ("Partition", "partition", 0)
_PATH: Field = ("Path", "path", "")
_READ_ONLY: Field = ("ReadOnly", "readOnly", False)
_SECRET: Field = ("SecretRef", "secretRef", "nil")
_VOLUME_ID: Field = ("VolumeID", "volumeID", "")
_ENDPOINTS: Field = ("EndpointsName", "endpoints", "")
_SECRET_NAME: Field = ("SecretName", "secretName", "")
_SHARE: Field = ("ShareName", "shareName", "")
_SCALE_IO: tuple[Field, ...] = (
    ("Gateway", "gateway", ""),
    ("System", "system", ""),
    ("Protection Domain", "protectionDomain", ""),
    ("Storage Pool", "storagePool", ""),
    ("Storage Mode", "storageMode", ""),
    ("VolumeName", "volumeName", ""),
)
_SCALE_IO_TITLE = "ScaleIO (a persistent volume backed by a block device in ScaleIO)"
_GLUSTERFS_TITLE = "Glusterfs (a Glusterfs mount on the host that shares a pod's lifetime)"
_AZURE_FILE_TITLE = "AzureFile (an Azure File Service mount on the host and bind mount to the pod)"

_KNOWN: dict[str, tuple[str, tuple[Field, ...] | Callable[[Object], Lines]]] = {
    "hostPath": ("HostPath (bare host directory volume)", (_PATH, ("HostPathType", "type", NONE))),
    "emptyDir": ("EmptyDir (a temporary directory that shares a pod's lifetime)", _empty_dir),
    "secret": ("Secret (a volume populated by a Secret)", (_SECRET_NAME, _OPTIONAL)),
    "configMap": ("ConfigMap (a volume populated by a ConfigMap)", (("Name", "name", ""), _OPTIONAL)),
    "persistentVolumeClaim": (
        "PersistentVolumeClaim (a reference to a PersistentVolumeClaim in the same namespace)",
        (("ClaimName", "claimName", ""), _READ_ONLY),
    ),
    "ephemeral": (
        "EphemeralVolume (an inline specification for a volume that gets created and deleted with the pod)",
        _ephemeral,
    ),
    "downwardAPI": ("DownwardAPI (a volume populated by information about the pod)", _downward),
    "projected": ("Projected (a volume that contains injected data from multiple sources)", _projected),
    "image": (
        "Image (a container image or OCI artifact)",
        (("Reference", "reference", ""), ("PullPolicy", "pullPolicy", "")),
    ),
    "csi": ("CSI (a Container Storage Interface (CSI) volume source)", _csi),
    "local": ("LocalVolume (a persistent volume backed by local storage on a node)", (_PATH,)),
    "nfs": ("NFS (an NFS mount that lasts the lifetime of a pod)", (("Server", "server", ""), _PATH, _READ_ONLY)),
    "fc": ("FC (a Fibre Channel disk)", _fibre_channel),
    "iscsi": (
        "ISCSI (an ISCSI Disk resource that is attached to a kubelet's host machine and then exposed to the pod)",
        (
            ("TargetPortal", "targetPortal", ""),
            ("IQN", "iqn", ""),
            ("Lun", "lun", 0),
            (_WITHOUT_COLON, "iscsiInterface", ""),
            _FS_TYPE,
            _READ_ONLY,
            ("Portals", "portals", []),
            ("DiscoveryCHAPAuth", "chapAuthDiscovery", False),
            ("SessionCHAPAuth", "chapAuthSession", False),
            _SECRET,
            ("InitiatorName", "initiatorName", NONE),
        ),
    ),
    "gitRepo": (
        "GitRepo (a volume that is pulled from git when the pod is created)",
        (("Repository", "repository", ""), ("Revision", "revision", "")),
    ),
    "flexVolume": (
        "FlexVolume (a generic volume resource that is provisioned/attached using an exec based plugin)",
        (("Driver", "driver", ""), _FS_TYPE, _SECRET, _READ_ONLY, ("Options", "options", {})),
    ),
    "gcePersistentDisk": (
        "GCEPersistentDisk (a Persistent Disk resource in Google Compute Engine)",
        (("PDName", "pdName", ""), _FS_TYPE, _PARTITION, _READ_ONLY),
    ),
    "awsElasticBlockStore": (
        "AWSElasticBlockStore (a Persistent Disk resource in AWS)",
        (_VOLUME_ID, _FS_TYPE, _PARTITION, _READ_ONLY),
    ),
    "azureDisk": (
        "AzureDisk (an Azure Data Disk mount on the host and bind mount to the pod)",
        (
            ("DiskName", "diskName", ""),
            ("DiskURI", "diskURI", ""),
            ("Kind", "kind", ""),
            _FS_TYPE,
            ("CachingMode", "cachingMode", ""),
            _READ_ONLY,
        ),
    ),
    "azureFile": (_AZURE_FILE_TITLE, (_SECRET_NAME, _SHARE, _READ_ONLY)),
    "cephfs": (
        "CephFS (a CephFS mount on the host that shares a pod's lifetime)",
        (
            ("Monitors", "monitors", []),
            _PATH,
            ("User", "user", ""),
            ("SecretFile", "secretFile", ""),
            _SECRET,
            _READ_ONLY,
        ),
    ),
    "cinder": ("Cinder (a Persistent Disk resource in OpenStack)", (_VOLUME_ID, _FS_TYPE, _READ_ONLY, _SECRET)),
    "flocker": (
        "Flocker (a Flocker volume mounted by the Flocker agent)",
        (("DatasetName", "datasetName", ""), ("DatasetUUID", "datasetUUID", "")),
    ),
    "glusterfs": (_GLUSTERFS_TITLE, (_ENDPOINTS, _PATH, _READ_ONLY)),
    "photonPersistentDisk": (
        "PhotonPersistentDisk (a Persistent Disk resource in photon platform)",
        (("PdID", "pdID", ""), _FS_TYPE),
    ),
    "portworxVolume": ("PortworxVolume (a Portworx Volume resource)", (_VOLUME_ID,)),
    "quobyte": (
        "Quobyte (a Quobyte mount on the host that shares a pod's lifetime)",
        (("Registry", "registry", ""), ("Volume", "volume", ""), _READ_ONLY),
    ),
    "rbd": (
        "RBD (a Rados Block Device mount on the host that shares a pod's lifetime)",
        (
            ("CephMonitors", "monitors", []),
            ("RBDImage", "image", ""),
            _FS_TYPE,
            ("RBDPool", "pool", ""),
            ("RadosUser", "user", ""),
            ("Keyring", "keyring", ""),
            _SECRET,
            _READ_ONLY,
        ),
    ),
    "scaleIO": (_SCALE_IO_TITLE, (*_SCALE_IO, _FS_TYPE, _READ_ONLY)),
    "storageos": (
        "StorageOS (a StorageOS Persistent Disk resource)",
        (("VolumeName", "volumeName", ""), ("VolumeNamespace", "volumeNamespace", ""), _FS_TYPE, _READ_ONLY),
    ),
    "vsphereVolume": (
        "vSphereVolume (a Persistent Disk resource in vSphere)",
        (("VolumePath", "volumePath", ""), _FS_TYPE, ("StoragePolicyName", "storagePolicyName", "")),
    ),
}

_OF_PERSISTENT: dict[str, tuple[str, tuple[Field, ...]]] = {
    "azureFile": (
        _AZURE_FILE_TITLE,
        (_SECRET_NAME, ("SecretNamespace", "secretNamespace", ""), _SHARE, _READ_ONLY),
    ),
    "glusterfs": (
        _GLUSTERFS_TITLE,
        (_ENDPOINTS, ("EndpointsNamespace", "endpointsNamespace", UNSET), _PATH, _READ_ONLY),
    ),
    "scaleIO": (
        _SCALE_IO_TITLE,
        (
            *_SCALE_IO,
            ("SecretName", "secretRef.name", ""),
            ("SecretNamespace", "secretRef.namespace", ""),
            _FS_TYPE,
            _READ_ONLY,
        ),
    ),
}
"""Further fields of persistent volumes: they have no namespace, so their references name one."""
