"""Descriptions of volumes: those of a pod, and what persistent ones are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pinnace.cli.described import NONE, UNSET, Description, title_of
from pinnace.cli.formats import shown
from pinnace.model.objects import Object

Lines = list[tuple[str, object]]


def volumes(page: Description, found: Iterable[Object], *, indent: str = "") -> None:
    found = list(found)
    if not found:
        page.line(f"{indent}Volumes:\t{NONE}")
        return
    page.line(f"{indent}Volumes:")
    for volume in found:
        page.line(f"{' ' if indent else ''}{volume['name']}:", 1)
        kind = next((name for name in volume if name != "name"), "emptyDir")
        source(page, kind, volume.get(kind) or {})


def source(page: Description, kind: str, content: Object) -> None:
    """Where what is in a volume comes from."""
    title, told = _KNOWN.get(kind, (title_of(kind).replace(" ", ""), _plainly))
    page.pair("Type", title, 2)
    for heading, value in told(content):
        page.pair(heading, value, 2) if heading else page.line(str(value), 2)


def _flag(value: object) -> str:
    return "true" if value else "false"


def _host_path(source: Object) -> Lines:
    return [("Path", source.get("path", "")), ("HostPathType", source.get("type") if "type" in source else NONE)]


def _empty_dir(source: Object) -> Lines:
    return [("Medium", source.get("medium", "")), ("SizeLimit", source.get("sizeLimit") or UNSET)]


def _secret(source: Object) -> Lines:
    return [("SecretName", source.get("secretName", "")), ("Optional", _flag(source.get("optional")))]


def _config_map(source: Object) -> Lines:
    return [("Name", source.get("name", "")), ("Optional", _flag(source.get("optional")))]


def _claim(source: Object) -> Lines:
    return [("ClaimName", source.get("claimName", "")), ("ReadOnly", _flag(source.get("readOnly")))]


def _nfs(source: Object) -> Lines:
    read_only = ("ReadOnly", _flag(source.get("readOnly")))
    return [("Server", source.get("server", "")), ("Path", source.get("path", "")), read_only]


def _csi(source: Object) -> Lines:
    lines: Lines = [
        ("Driver", source.get("driver", "")),
        ("FSType", source.get("fsType", "")),
        *([("VolumeHandle", source["volumeHandle"])] if "volumeHandle" in source else []),
        ("ReadOnly", _flag(source.get("readOnly"))),
    ]
    attributes = source.get("volumeAttributes") or {}
    told = [f"{key}={attributes[key]}" for key in sorted(attributes)] or [NONE]
    lines.append(("VolumeAttributes", "    " + told[0] if attributes else told[0]))
    return lines + [("", f"\t    {one}") for one in told[1:]]


def _local(source: Object) -> Lines:
    return [("Path", source.get("path", ""))]


def _image(source: Object) -> Lines:
    return [("Reference", source.get("reference", "")), ("PullPolicy", source.get("pullPolicy", ""))]


def _downward(source: Object) -> Lines:
    lines: Lines = [("", "Items:")]
    for item in source.get("items") or ():
        reference = item.get("fieldRef") or {}
        named = reference.get("fieldPath") or (item.get("resourceFieldRef") or {}).get("resource")
        lines.append(("", f"  {named} -> {item['path']}"))
    return lines


def _projected(source: Object) -> Lines:
    lines: Lines = []
    for one in source.get("sources") or ():
        if "secret" in one:
            lines += [("SecretName", one["secret"].get("name", "")), ("Optional", _flag(one["secret"].get("optional")))]
        elif "downwardAPI" in one:
            lines.append(("DownwardAPI", "true"))
        elif "configMap" in one:
            named = ("ConfigMapName", one["configMap"].get("name", ""))
            lines += [named, ("Optional", _flag(one["configMap"].get("optional")))]
        elif "serviceAccountToken" in one:
            lines.append(("TokenExpirationSeconds", one["serviceAccountToken"].get("expirationSeconds", 0)))
    return lines


def _plainly(source: Object) -> Lines:
    return [(title_of(name).replace(" ", ""), shown(source[name])) for name in sorted(source)]


_KNOWN: dict[str, tuple[str, Callable[[Object], Lines]]] = {
    "hostPath": ("HostPath (bare host directory volume)", _host_path),
    "emptyDir": ("EmptyDir (a temporary directory that shares a pod's lifetime)", _empty_dir),
    "secret": ("Secret (a volume populated by a Secret)", _secret),
    "configMap": ("ConfigMap (a volume populated by a ConfigMap)", _config_map),
    "persistentVolumeClaim": (
        "PersistentVolumeClaim (a reference to a PersistentVolumeClaim in the same namespace)",
        _claim,
    ),
    "nfs": ("NFS (an NFS mount that lasts the lifetime of a pod)", _nfs),
    "csi": ("CSI (a Container Storage Interface (CSI) volume source)", _csi),
    "local": ("LocalVolume (a persistent volume backed by local storage on a node)", _local),
    "image": ("Image (a container image or OCI artifact)", _image),
    "downwardAPI": ("DownwardAPI (a volume populated by information about the pod)", _downward),
    "projected": ("Projected (a volume that contains injected data from multiple sources)", _projected),
}
