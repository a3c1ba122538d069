"""kubectl's flags that override a kubeconfig: another context, another server, another user."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pinnace.client.kubeconfig import Access, KubeconfigError, access_of, files_of, find_access, load
from pinnace.model.objects import Object

_NAME = "asked for"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """The values of kubectl's flags of these names; empty if not given."""

    kubeconfig: Path | None = None
    context: str = ""
    cluster: str = ""
    user: str = ""
    namespace: str = ""
    server: str = ""
    tls_server_name: str = ""
    certificate_authority: Path | None = None
    insecure_skip_tls_verify: bool = False
    client_certificate: Path | None = None
    client_key: Path | None = None
    token: str = ""
    as_: str = ""
    as_group: tuple[str, ...] = ()
    as_uid: str = ""


def find_access_with(flags: Overrides, *, environment: Mapping[str, str] | None = None) -> Access:
    """Return the access that kubectl would have with these flags. Raise KubeconfigError."""
    environment = os.environ if environment is None else environment
    config = load(files_of(environment, flags.kubeconfig), must_exist=flags.kubeconfig is not None)
    if not config.get("contexts") and not flags.server:
        found = find_access(path=flags.kubeconfig, context=flags.context, environment=environment)
        return replace(found, namespace=flags.namespace or found.namespace)
    context = _context(config, flags)
    cluster = _find_by_name(config, "clusters", "cluster", flags.cluster or context.get("cluster") or "", flags.server)
    user = _find_by_name(config, "users", "user", flags.user or context.get("user") or "", "any")
    namespace = str(flags.namespace or context.get("namespace") or "default")
    whole: Object = {
        "current-context": _NAME,
        "contexts": [{"name": _NAME, "context": {"cluster": _NAME, "user": _NAME, "namespace": namespace}}],
        "clusters": [{"name": _NAME, "cluster": _cluster(cluster, flags)}],
        "users": [{"name": _NAME, "user": _user(user, flags)}],
    }
    return access_of(whole)


def _context(config: Object, flags: Overrides) -> Object:
    name = flags.context or config.get("current-context") or ""
    return _find_by_name(config, "contexts", "context", name, "" if flags.context else flags.server or flags.cluster)


def _find_by_name(config: Object, section: str, inner: str, name: str, instead: str) -> Object:
    """Return the entry of a name. Without a name it may be missing if a flag gives its content `instead`."""
    known = {str(entry["name"]): entry[inner] for entry in config.get(section) or ()}
    if name in known:
        found: Object = known[name]
        return found
    if not name and instead:
        return {}
    raise KubeconfigError(f"the kubeconfig has no {inner} {name!r}; it has: {', '.join(known) or 'none'}")


def _cluster(cluster: Object, flags: Overrides) -> Object:
    changed = dict(cluster)
    if flags.server:
        changed["server"] = flags.server
    if flags.tls_server_name:
        changed["tls-server-name"] = flags.tls_server_name
    if flags.certificate_authority is not None:
        changed.pop("certificate-authority-data", None)
        changed["certificate-authority"] = str(flags.certificate_authority.absolute())
    if flags.insecure_skip_tls_verify:
        changed["insecure-skip-tls-verify"] = True
    return changed


def _user(user: Object, flags: Overrides) -> Object:
    changed = dict(user)
    if flags.token:
        # A token names its user: no plug-in and no file may override it.
        changed = {name: value for name, value in changed.items() if name not in ("exec", "tokenFile", "auth-provider")}
        changed["token"] = flags.token
    for name, file in (("client-certificate", flags.client_certificate), ("client-key", flags.client_key)):
        if file is not None:
            changed.pop(f"{name}-data", None)
            changed[name] = str(file.absolute())
    impersonated = {"as": flags.as_, "as-groups": list(flags.as_group), "as-uid": flags.as_uid}
    return changed | {name: value for name, value in impersonated.items() if value}
