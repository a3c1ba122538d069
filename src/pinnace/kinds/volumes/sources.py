"""The sources of persistent volumes: required fields, defaults, validation, and how Kubernetes prints them."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, cast

from pinnace.kinds.golang.printing import GoStruct
from pinnace.kinds.validation.fields import (
    validate_choice,
    validate_given_name,
    validate_name,
    validate_range,
    validate_required,
)
from pinnace.model import names
from pinnace.model.field_errors import FieldError, forbidden, invalid, not_supported, required, too_long
from pinnace.model.objects import Object
from pinnace.model.typed_objects import (
    AWSElasticBlockStoreVolumeSource,
    AzureDiskVolumeSource,
    AzureFilePersistentVolumeSource,
    CinderPersistentVolumeSource,
    CSIPersistentVolumeSource,
    FCVolumeSource,
    FlexPersistentVolumeSource,
    FlockerVolumeSource,
    GCEPersistentDiskVolumeSource,
    GlusterfsPersistentVolumeSource,
    HostPathVolumeSource,
    ISCSIPersistentVolumeSource,
    LocalVolumeSource,
    NFSVolumeSource,
    PersistentVolumeSpec,
    QuobyteVolumeSource,
    SecretReference,
    StorageOSPersistentVolumeSource,
)

HOST_PATH_TYPES = ("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket")
AZURE_MANAGED_URI = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
AZURE_BLOB_URI = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
HOST_AND_PORT = "must be a host:port pair or multiple pairs separated by commas"

_ISCSI_NAMES = {
    "iqn": re.compile(r"iqn\.\d{4}-\d{2}\.([0-9A-Za-z\-.]+)(:[^,;*&$|\s]+)$"),
    "eui": re.compile(r"^eui.[0-9A-Za-z]{16}$"),
    "naa": re.compile(r"^naa.[0-9A-Za-z]{32}$"),
}

Source = Mapping[str, Any]
SourceErrors = Callable[[Any, str], Iterator[FieldError]]


def _accept(source: Source, path: str) -> Iterator[FieldError]:
    yield from ()


def _host_path(source: HostPathVolumeSource, path: str) -> Iterator[FieldError]:
    if not source.get("path"):
        yield required(f"{path}.path")
        return
    yield from _validate_backstep(source["path"], f"{path}.path")
    yield from validate_choice(source.get("type"), HOST_PATH_TYPES, f"{path}.type")


def _local(source: LocalVolumeSource, path: str) -> Iterator[FieldError]:
    if not source.get("path"):
        yield required(f"{path}.path")
    else:
        yield from _validate_backstep(source["path"], f"{path}.path")


def _validate_backstep(value: str, path: str) -> Iterator[FieldError]:
    if ".." in value.split("/"):
        yield invalid(path, value, "must not contain '..'")


def _partition(
    source: GCEPersistentDiskVolumeSource | AWSElasticBlockStoreVolumeSource, path: str
) -> Iterator[FieldError]:
    if not 0 <= source.get("partition", 0) <= 255:  # The message says 1, but 0 is valid: it means the whole disk.
        yield invalid(f"{path}.partition", source["partition"], "must be between 1 and 255, inclusive")


def _glusterfs(source: GlusterfsPersistentVolumeSource, path: str) -> Iterator[FieldError]:
    namespace = source.get("endpointsNamespace")
    if namespace == "":
        detail = "if the endpointnamespace is set, it must be a valid namespace name"
        yield invalid(f"{path}.endpointsNamespace", namespace, detail)
    elif namespace is not None:
        yield from validate_name(namespace, names.dns_label, f"{path}.endpointsNamespace")


def _flocker(source: FlockerVolumeSource, path: str) -> Iterator[FieldError]:
    name, uuid = source.get("datasetName", ""), source.get("datasetUUID", "")
    if not name and not uuid:
        yield required(path, "one of datasetName and datasetUUID is required")
    if name and uuid:
        yield invalid(path, "resource", "datasetName and datasetUUID can not be specified simultaneously")
    if "/" in name:
        yield invalid(f"{path}.datasetName", name, "must not contain '/'")


def _nfs(source: NFSVolumeSource, path: str) -> Iterator[FieldError]:
    if not source.get("path", "").startswith("/"):
        yield invalid(f"{path}.path", source.get("path", ""), "must be an absolute path")


def _quobyte(source: QuobyteVolumeSource, path: str) -> Iterator[FieldError]:
    registry = source.get("registry", "")
    if not registry:
        yield required(f"{path}.registry", HOST_AND_PORT)
    elif len(source.get("tenant", "")) >= 65:
        yield required(f"{path}.tenant", "must be a UUID and may not exceed a length of 64 characters")
    else:
        for pair in registry.split(","):
            if not re.fullmatch(r"\[[^\[\]]*\]:[^:]*|[^:\[\]]*:[^:\[\]]*", pair):
                yield invalid(f"{path}.registry", registry, HOST_AND_PORT)
    yield from validate_required(source, ["volume"], path)


def _iscsi(source: ISCSIPersistentVolumeSource, path: str) -> Iterator[FieldError]:
    iqn = source.get("iqn", "")
    if not iqn:
        yield required(f"{path}.iqn")
    else:
        yield from _validate_iscsi_name(iqn, f"{path}.iqn")
    yield from validate_range(source.get("lun", 0), 0, 255, f"{path}.lun")
    secret = source.get("secretRef")
    if secret is None and (source.get("chapAuthDiscovery") or source.get("chapAuthSession")):
        yield required(f"{path}.secretRef")
    if secret is not None:
        yield from validate_required(secret, ["name"], f"{path}.secretRef")
    if (initiator := source.get("initiatorName")) is not None:
        yield from _validate_iscsi_name(initiator, f"{path}.initiatorname")


def _validate_iscsi_name(name: str, path: str) -> Iterator[FieldError]:
    pattern = _ISCSI_NAMES.get(name[:3])
    if pattern is None or not pattern.search(name):
        yield invalid(path, name, "must be valid format")


def _secret_with_namespace(
    source: CinderPersistentVolumeSource | StorageOSPersistentVolumeSource, path: str
) -> Iterator[FieldError]:
    if (secret := source.get("secretRef")) is not None:
        yield from validate_required(secret, ["name", "namespace"], f"{path}.secretRef")


def _fc(source: FCVolumeSource, path: str) -> Iterator[FieldError]:
    wwns, wwids = source.get("targetWWNs"), source.get("wwids")
    if not wwns and not wwids:
        yield required(f"{path}.targetWWNs", "must specify either targetWWNs or wwids, but not both")
    if wwns and wwids:
        yield invalid(f"{path}.targetWWNs", wwns, "targetWWNs and wwids can not be specified simultaneously")
    if wwns and "lun" not in source:
        yield required(f"{path}.lun", "lun is required if targetWWNs is specified")
    elif wwns:
        yield from validate_range(source["lun"], 0, 255, f"{path}.lun")


def _flex_volume(source: FlexPersistentVolumeSource, path: str) -> Iterator[FieldError]:
    for option in sorted(source.get("options") or {}):
        owner = "." + option.partition("/")[0].lower()
        if owner.endswith((".kubernetes.io", ".k8s.io")):
            detail = "kubernetes.io and k8s.io namespaces are reserved"
            yield invalid(f"{path}.options[{option}]", option, detail)


def _azure_file(source: AzureFilePersistentVolumeSource, path: str) -> Iterator[FieldError]:
    if source.get("secretNamespace") == "":
        yield required(f"{path}.secretNamespace")


def _azure_disk(source: AzureDiskVolumeSource, path: str) -> Iterator[FieldError]:
    yield from validate_choice(source.get("cachingMode"), ("None", "ReadOnly", "ReadWrite"), f"{path}.cachingMode")
    kind, uri = source.get("kind"), source.get("diskURI", "")
    yield from validate_choice(kind, ("Dedicated", "Managed", "Shared"), f"{path}.kind")
    if kind == "Managed" and not uri.startswith("/subscriptions/"):
        yield not_supported(f"{path}.diskURI", uri, [AZURE_MANAGED_URI])
    if kind not in (None, "Managed") and not uri.startswith("https://"):
        yield not_supported(f"{path}.diskURI", uri, [AZURE_BLOB_URI])


def _storageos(source: StorageOSPersistentVolumeSource, path: str) -> Iterator[FieldError]:
    yield from validate_given_name(source.get("volumeName"), names.dns_label, f"{path}.volumeName")
    yield from validate_name(source.get("volumeNamespace") or None, names.dns_label, f"{path}.volumeNamespace")
    yield from _secret_with_namespace(source, path)


def validate_csi_driver_name(
    name: str, path: str, rule: Callable[[str], list[str]] = lambda name: names.dns_subdomain(name.lower())
) -> Iterator[FieldError]:
    """Check the name of a CSI driver: a DNS subdomain of at most 63 bytes, in upper or lower case."""
    if not name:
        yield required(path)
        return
    if len(name) > 63:
        yield too_long(path, 63)
    for err in rule(name):
        yield invalid(path, name, err)


def _csi(source: CSIPersistentVolumeSource, path: str) -> Iterator[FieldError]:
    yield from validate_csi_driver_name(source.get("driver", ""), f"{path}.driver")
    yield from validate_required(source, ["volumeHandle"], path)
    for field in (
        "controllerPublishSecretRef",
        "controllerExpandSecretRef",
        "nodePublishSecretRef",
        "nodeExpandSecretRef",
    ):
        if (secret := source.get(field)) is not None:
            yield from _validate_secret_reference(secret, f"{path}.{field}")


def _validate_secret_reference(secret: SecretReference, path: str) -> Iterator[FieldError]:
    name, namespace = secret.get("name"), secret.get("namespace")
    for field, value, rule in (("name", name, names.dns_subdomain), ("namespace", namespace, names.dns_label)):
        yield from validate_given_name(value, rule, f"{path}.{field}")


_SECRET = GoStruct("Name='' Namespace=''")
OBJECT_REFERENCE = GoStruct(
    "Kind='' Namespace='' Name='' UID:uid='' APIVersion:apiVersion='' ResourceVersion='' FieldPath=''"
)


class VolumeSource(NamedTuple):
    """One type of source: its field, its required fields, its other checks, and its Go type."""

    field: str
    go_name: str
    struct: GoStruct
    required: tuple[str, ...] = ()
    errs: SourceErrors = _accept
    error_name: str = ""
    """The name of the field in errors about its contents, if it differs."""
    second_name: str = ""
    """The name of the field in the error about a second source, if it differs."""


# In Kubernetes' order: of two sources, the second has the error.
SOURCES = (
    VolumeSource("hostPath", "HostPath", GoStruct("Path='' Type"), (), _host_path),
    VolumeSource(
        "gcePersistentDisk",
        "GCEPersistentDisk",
        GoStruct("PDName:pdName='' FSType:fsType='' Partition=0 ReadOnly=false"),
        ("pdName",),
        _partition,
        "persistentDisk",
    ),
    VolumeSource(
        "awsElasticBlockStore",
        "AWSElasticBlockStore",
        GoStruct("VolumeID='' FSType:fsType='' Partition=0 ReadOnly=false"),
        ("volumeID",),
        _partition,
    ),
    VolumeSource(
        "glusterfs",
        "Glusterfs",
        GoStruct("EndpointsName:endpoints='' Path='' ReadOnly=false EndpointsNamespace"),
        ("endpoints", "path"),
        _glusterfs,
    ),
    VolumeSource("flocker", "Flocker", GoStruct("DatasetName='' DatasetUUID=''"), (), _flocker),
    VolumeSource("nfs", "NFS", GoStruct("Server='' Path='' ReadOnly=false"), ("server", "path"), _nfs),
    VolumeSource(
        "rbd",
        "RBD",
        GoStruct(
            "CephMonitors:monitors RBDImage:image='' FSType:fsType='' RBDPool:pool='' RadosUser:user='' Keyring='' "
            "SecretRef ReadOnly=false",
            SecretRef=_SECRET,
        ),
        ("monitors", "image"),
    ),
    VolumeSource(
        "quobyte",
        "Quobyte",
        GoStruct("Registry='' Volume='' ReadOnly=false User='' Group='' Tenant=''"),
        (),
        _quobyte,
    ),
    VolumeSource(
        "cephfs",
        "CephFS",
        GoStruct("Monitors Path='' User='' SecretFile='' SecretRef ReadOnly=false", SecretRef=_SECRET),
        ("monitors",),
        second_name="cephFS",
    ),
    VolumeSource(
        "iscsi",
        "ISCSI",
        GoStruct(
            "TargetPortal='' IQN:iqn='' Lun=0 ISCSIInterface:iscsiInterface='' FSType:fsType='' ReadOnly=false Portals "
            "DiscoveryCHAPAuth:chapAuthDiscovery=false SessionCHAPAuth:chapAuthSession=false SecretRef InitiatorName",
            SecretRef=_SECRET,
        ),
        ("targetPortal",),
        _iscsi,
    ),
    VolumeSource(
        "cinder",
        "Cinder",
        GoStruct("VolumeID='' FSType:fsType='' ReadOnly=false SecretRef", SecretRef=_SECRET),
        ("volumeID",),
        _secret_with_namespace,
    ),
    VolumeSource("fc", "FC", GoStruct("TargetWWNs Lun FSType:fsType='' ReadOnly=false WWIDs:wwids"), (), _fc),
    VolumeSource(
        "flexVolume",
        "FlexVolume",
        GoStruct("Driver='' FSType:fsType='' SecretRef ReadOnly=false Options", SecretRef=_SECRET),
        ("driver",),
        _flex_volume,
    ),
    VolumeSource(
        "azureFile",
        "AzureFile",
        GoStruct("SecretName='' ShareName='' ReadOnly=false SecretNamespace"),
        ("secretName", "shareName"),
        _azure_file,
    ),
    VolumeSource(
        "vsphereVolume",
        "VsphereVolume",
        GoStruct("VolumePath='' FSType:fsType='' StoragePolicyName='' StoragePolicyID=''"),
        ("volumePath",),
    ),
    VolumeSource("photonPersistentDisk", "PhotonPersistentDisk", GoStruct("PdID='' FSType:fsType=''"), ("pdID",)),
    VolumeSource(
        "portworxVolume",
        "PortworxVolume",
        GoStruct("VolumeID='' FSType:fsType='' ReadOnly=false"),
        ("volumeID",),
    ),
    VolumeSource(
        "azureDisk",
        "AzureDisk",
        GoStruct("DiskName='' DataDiskURI:diskURI='' CachingMode FSType:fsType ReadOnly Kind"),
        ("diskName", "diskURI"),
        _azure_disk,
    ),
    VolumeSource(
        "scaleIO",
        "ScaleIO",
        GoStruct(
            "Gateway='' System='' SecretRef SSLEnabled:sslEnabled=false ProtectionDomain='' StoragePool='' "
            "StorageMode='' VolumeName='' FSType:fsType='' ReadOnly=false",
            SecretRef=_SECRET,
        ),
        ("gateway", "system", "volumeName"),
    ),
    VolumeSource("local", "Local", GoStruct("Path='' FSType:fsType"), (), _local),
    VolumeSource(
        "storageos",
        "StorageOS",
        GoStruct(
            "VolumeName='' VolumeNamespace='' FSType:fsType='' ReadOnly=false SecretRef", SecretRef=OBJECT_REFERENCE
        ),
        (),
        _storageos,
    ),
    VolumeSource(
        "csi",
        "CSI",
        GoStruct(
            "Driver='' VolumeHandle='' ReadOnly=false FSType:fsType='' VolumeAttributes ControllerPublishSecretRef "
            "NodeStageSecretRef NodePublishSecretRef ControllerExpandSecretRef NodeExpandSecretRef",
            ControllerPublishSecretRef=_SECRET,
            NodeStageSecretRef=_SECRET,
            NodePublishSecretRef=_SECRET,
            ControllerExpandSecretRef=_SECRET,
            NodeExpandSecretRef=_SECRET,
        ),
        (),
        _csi,
    ),
)

SOURCES_BY_FIELD = {source.field: source for source in SOURCES}

_GO_ORDER = (
    "GCEPersistentDisk AWSElasticBlockStore HostPath Glusterfs NFS RBD Quobyte ISCSI FlexVolume Cinder CephFS FC "
    "Flocker AzureFile VsphereVolume AzureDisk PhotonPersistentDisk PortworxVolume ScaleIO Local StorageOS CSI"
)
_BY_GO_NAME = {source.go_name: source for source in SOURCES}
SOURCE_FIELDS = " ".join(f"{name}:{_BY_GO_NAME[name].field}" for name in _GO_ORDER.split())
SOURCE_STRUCTS = {source.go_name: source.struct for source in SOURCES}
ALL_SOURCES = GoStruct(SOURCE_FIELDS, structs=SOURCE_STRUCTS)
"""Go's PersistentVolumeSource, embedded in a spec."""

DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "hostPath": {"type": ""},
    "iscsi": {"iscsiInterface": "default"},
    "rbd": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
    "azureDisk": {"cachingMode": "ReadWrite", "fsType": "ext4", "readOnly": False, "kind": "Shared"},
    "scaleIO": {"storageMode": "ThinProvisioned", "fsType": "xfs"},
}


def default_source(spec: Object) -> None:
    """Set the defaults of a volume's source."""
    for field, defaults in DEFAULTS.items():
        if (source := spec.get(field)) is not None:
            for name, value in defaults.items():
                # Pointers keep an explicit empty value; plain strings cannot.
                if name not in source or (field in ("iscsi", "rbd", "scaleIO") and not source[name]):
                    source[name] = value


def sources_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a volume's spec that are sources."""
    return {source.field: spec[source.field] for source in SOURCES if source.field in spec}


def validate_source(spec: PersistentVolumeSpec, path: str, *, volume_name: str) -> Iterator[FieldError]:
    """Check that there is exactly one source, and that it is valid."""
    count = 0
    for source in SOURCES:
        if (value := cast("Object", spec).get(source.field)) is None:
            continue
        if count and source.field != "flexVolume":
            yield forbidden(f"{path}.{source.second_name or source.field}", "may not specify more than 1 volume type")
            continue
        count += 1
        inside = f"{path}.{source.error_name or source.field}"
        yield from validate_required(value, source.required, inside)
        if source.field == "iscsi":
            yield from _validate_portal(value, inside, volume_name)
        yield from source.errs(value, inside)
        if source.field == "local" and spec.get("nodeAffinity") is None:
            yield required(f"{path}.nodeAffinity", "Local volume requires node affinity")
    if not count:
        yield required(path, "must specify a volume type")


def _validate_portal(source: ISCSIPersistentVolumeSource, path: str, volume_name: str) -> Iterator[FieldError]:
    portal = source.get("targetPortal", "")
    if source.get("initiatorName") is not None and len(f"{volume_name}:{portal}") > 64:
        detail = (
            "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters "
            "if iscsi.initiatorName is specified."
        )
        yield invalid(f"{path}.targetportal", portal, detail)


def is_root(path: str) -> bool:
    """Return whether a host path is /, in any spelling."""
    return bool(path) and posixpath.normpath(path) in ("/", "//")
