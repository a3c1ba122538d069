"""Tells kubectl and every other client how to reach the cluster: writes a kubeconfig, or merges into the user's own."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pinnace.process.private_files import write_private

DEFAULT_NAME = "pinnace"


class _Loader(yaml.CSafeLoader):
    """Reads scalars as kubectl does: what YAML 1.1 takes for a date or a base-60 number stays the text that it was."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - the name and the shape are PyYAML's
        first: [
            (tag, pattern) for tag, pattern in resolvers if tag.rpartition(":")[2] not in ("timestamp", "int", "float")
        ]
        for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    }


_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?(0|[1-9][0-9]*)$"), list("-+0123456789"))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+\.[0-9]*([eE][-+][0-9]+)?$"), list("-+0123456789")
)


class KubeconfigWriteError(Exception):
    """A kubeconfig cannot be read or may not be changed. It was left as it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAccess:
    """The address of a cluster and the credentials of its administrator. All in PEM."""

    server: str
    ca: bytes
    client_certificate: bytes = b""
    client_key: bytes = b""
    token: str = ""
    name: str = DEFAULT_NAME
    """The name of the cluster, the user and the context."""
    namespace: str = ""


def kubeconfig_of(access: ClusterAccess) -> dict[str, Any]:
    """Return a whole kubeconfig with this one cluster in it."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": access.name, "cluster": _cluster(access)}],
        "users": [{"name": access.name, "user": _user(access)}],
        "contexts": [{"name": access.name, "context": _context(access)}],
        "current-context": access.name,
        "preferences": {},
    }


def write(path: Path, access: ClusterAccess) -> None:
    """Write a kubeconfig of its own to `path`, for the owner's eyes only. A reader never sees a part of it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_private(path, render(access))
    except OSError as error:
        raise KubeconfigWriteError(
            f"the kubeconfig {path} cannot be written ({error.strerror or error}); choose another path"
        ) from error


def render(access: ClusterAccess) -> bytes:
    """Return the contents of a kubeconfig with this one cluster in it."""
    return _dump(kubeconfig_of(access))


def merge(into: Path, access: ClusterAccess, *, use: bool = False) -> None:
    """Add the cluster to the kubeconfig `into`, made if it is missing; all else in there is preserved.

    An entry of the same name is replaced if it is ours: its cluster has the same server or the same CA. Its context
    becomes the current one if `use`, or if there is none. Raises KubeconfigWriteError, and then nothing was written.
    """
    # A link is followed, so that the file it points to is replaced and not the link.
    path = into.resolve()
    config = _load(path)
    wanted = kubeconfig_of(access)
    clusters, users, contexts = (_entries(config, section, path) for section in ("clusters", "users", "contexts"))
    cluster, user, context = (
        _find_by_name(clusters, access.name),
        _find_by_name(users, access.name),
        _find_by_name(contexts, access.name),
    )
    if cluster is not None:
        if not _is_ours(_inner(cluster, "cluster", path), access):
            raise KubeconfigWriteError(
                f"{path} already has another cluster named {access.name!r}; choose another --name, or remove that one"
            )
    elif user is not None or (context is not None and not _points_at(_inner(context, "context", path), access.name)):
        raise KubeconfigWriteError(
            f"{path} already has a user or context named {access.name!r} that belongs to another cluster; "
            "choose another --name, or remove it"
        )
    before = _dump(config) if config else b""
    _put(clusters, wanted["clusters"][0], "cluster", replaced=_CLUSTER_FIELDS)
    _put(users, wanted["users"][0], "user", replaced=_USER_FIELDS)
    _put(contexts, wanted["contexts"][0], "context", replaced=())
    for section, entries in (("clusters", clusters), ("users", users), ("contexts", contexts)):
        config[section] = entries
    config.setdefault("apiVersion", "v1")
    config.setdefault("kind", "Config")
    if use or not config.get("current-context"):
        config["current-context"] = access.name
    content = _dump(config)
    if content == before:
        return
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_private(path, content, durable=True)


# The fields for the server's address and the user. Those of an earlier start must not stay beside the new ones.
_CLUSTER_FIELDS = ("server", "certificate-authority", "certificate-authority-data", "insecure-skip-tls-verify")
_USER_FIELDS = (
    "client-certificate",
    "client-certificate-data",
    "client-key",
    "client-key-data",
    "token",
    "tokenFile",
)


def _cluster(access: ClusterAccess) -> dict[str, Any]:
    return {"server": access.server, "certificate-authority-data": _base64(access.ca)}


def _user(access: ClusterAccess) -> dict[str, Any]:
    user: dict[str, Any] = {}
    if access.client_certificate:
        user["client-certificate-data"] = _base64(access.client_certificate)
        user["client-key-data"] = _base64(access.client_key)
    if access.token:
        user["token"] = access.token
    return user


def _context(access: ClusterAccess) -> dict[str, Any]:
    context = {"cluster": access.name, "user": access.name}
    if access.namespace:
        context["namespace"] = access.namespace
    return context


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _dump(config: dict[str, Any]) -> bytes:
    return yaml.dump(config, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True, encoding="utf-8")


def _load(path: Path) -> dict[str, Any]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise KubeconfigWriteError(f"{path} cannot be read: {error.strerror}") from error
    try:
        config = yaml.load(content, Loader=_Loader)
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        raise KubeconfigWriteError(f"{path} is not valid YAML, mend or move it: {error}") from error
    if config is None:
        return {}
    if not isinstance(config, dict):
        raise KubeconfigWriteError(f"{path} is not a kubeconfig: expected a mapping, found a {type(config).__name__}")
    return config


def _entries(config: dict[str, Any], section: str, path: Path) -> list[dict[str, Any]]:
    entries = config.get(section)
    if entries is None:
        return []
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise KubeconfigWriteError(f"{path} is not a kubeconfig: {section} must be a list of named entries")
    return entries


def _find_by_name(entries: list[dict[str, Any]], name: str) -> dict[str, Any] | None:
    return next((entry for entry in entries if entry.get("name") == name), None)


def _inner(entry: dict[str, Any], kind: str, path: Path) -> dict[str, Any]:
    inner = entry.get(kind)
    if inner is None:
        return {}
    if not isinstance(inner, dict):
        raise KubeconfigWriteError(f"{path} is not a kubeconfig: {kind} {entry.get('name')!r} must be a mapping")
    return inner


def _is_ours(cluster: dict[str, Any], access: ClusterAccess) -> bool:
    if not cluster:
        return True
    same_ca = cluster.get("certificate-authority-data") == _base64(access.ca)
    return same_ca or cluster.get("server") == access.server


def _points_at(context: dict[str, Any], cluster: str) -> bool:
    return context.get("cluster") in (None, "", cluster)


def _put(entries: list[dict[str, Any]], wanted: dict[str, Any], kind: str, *, replaced: tuple[str, ...]) -> None:
    """Add `wanted`, or bring the entry of its name up to date; fields that we do not know survive in it."""
    entry = _find_by_name(entries, wanted["name"])
    if entry is None:
        entries.append(wanted)
        return
    kept = {field: value for field, value in (entry.get(kind) or {}).items() if field not in replaced}
    entry[kind] = {**kept, **wanted[kind]}
