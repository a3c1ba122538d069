"""What kubectl's flags say over what stands in a kubeconfig: another context, another server, another user."""

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
    """Each as kubectl's flag of that name; what is empty was not said."""

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


def find_access_with(said: Overrides, *, environment: Mapping[str, str] | None = None) -> Access:
    """The access that kubectl would have with these flags. Raises KubeconfigError."""
    environment = os.environ if environment is None else environment
    config = load(files_of(environment, said.kubeconfig), must_exist=said.kubeconfig is not None)
    if not config.get("contexts") and not said.server:
        found = find_access(path=said.kubeconfig, context=said.context, environment=environment)
        return replace(found, namespace=said.namespace or found.namespace)
    context = _context(config, said)
    cluster = _named(config, "clusters", "cluster", said.cluster or context.get("cluster") or "", said.server)
    user = _named(config, "users", "user", said.user or context.get("user") or "", "any")
    whole: Object = {
        "current-context": _NAME,
        "contexts": [{"name": _NAME, "context": {"cluster": _NAME, "user": _NAME, "namespace": _place(context, said)}}],
        "clusters": [{"name": _NAME, "cluster": _cluster(cluster, said)}],
        "users": [{"name": _NAME, "user": _user(user, said)}],
    }
    return access_of(whole)


def _context(config: Object, said: Overrides) -> Object:
    name = said.context or config.get("current-context") or ""
    return _named(config, "contexts", "context", name, "" if said.context else said.server or said.cluster)


def _named(config: Object, section: str, inner: str, name: str, instead: str) -> Object:
    """The entry of a name. One that nobody has named may be missing, where something was said `instead`."""
    known = {str(entry["name"]): entry[inner] for entry in config.get(section) or ()}
    if name in known:
        found: Object = known[name]
        return found
    if not name and instead:
        return {}
    raise KubeconfigError(f"the kubeconfig has no {inner} {name!r}; it has: {', '.join(known) or 'none'}")


def _place(context: Object, said: Overrides) -> str:
    return str(said.namespace or context.get("namespace") or "default")


def _cluster(cluster: Object, said: Overrides) -> Object:
    changed = dict(cluster)
    if said.server:
        changed["server"] = said.server
    if said.tls_server_name:
        changed["tls-server-name"] = said.tls_server_name
    if said.certificate_authority is not None:
        changed.pop("certificate-authority-data", None)
        changed["certificate-authority"] = str(said.certificate_authority.absolute())
    if said.insecure_skip_tls_verify:
        changed["insecure-skip-tls-verify"] = True
    return changed


def _user(user: Object, said: Overrides) -> Object:
    changed = dict(user)
    if said.token:
        # Who shows a token means to be its user: no plug-in and no file may say otherwise.
        changed = {name: value for name, value in changed.items() if name not in ("exec", "tokenFile", "auth-provider")}
        changed["token"] = said.token
    for name, file in (("client-certificate", said.client_certificate), ("client-key", said.client_key)):
        if file is not None:
            changed.pop(f"{name}-data", None)
            changed[name] = str(file.absolute())
    asked = {"as": said.as_, "as-groups": list(said.as_group), "as-uid": said.as_uid}
    return changed | {name: value for name, value in asked.items() if value}
