"""Find the address and credentials of a cluster: in kubeconfig files, or in a pod's service account."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pinnace.client.credentials import CredentialSource, ExecPlugin, Fixed, FromExecPlugin, Identity, TokenFile
from pinnace.model.objects import Object

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_EXEC_CLUSTER = "client.authentication.k8s.io/exec"


class KubeconfigError(Exception):
    """No cluster was found. The message names what was missing, and where it was looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The address of one cluster and the credentials of one user."""

    server: str
    ca: bytes = b""
    """PEM; without it the system's CAs are trusted."""
    insecure: bool = False
    """Do not verify the server's certificate."""
    server_name: str = ""
    """The name that its certificate must have, if that is not the one in the URL."""
    proxy: str = ""
    credentials: CredentialSource = field(default_factory=Fixed)
    headers: tuple[tuple[str, str], ...] = ()
    """Sent with every request, in this order: the impersonated user."""
    namespace: str = "default"


def find_access(*, path: Path | None = None, context: str = "", environment: Mapping[str, str] | None = None) -> Access:
    """Return the access that kubectl would use; in a pod without a kubeconfig, the pod's service account."""
    environment = os.environ if environment is None else environment
    config = load(files_of(environment, path), must_exist=path is not None)
    if config.get("contexts") or config.get("current-context") or context:
        return access_of(config, context)
    if environment.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(environment)
    looked_in = ", ".join(str(file) for file in files_of(environment, path))
    raise KubeconfigError(
        f"no kubeconfig with a context was found in {looked_in}, and this is not a pod; "
        "set KUBECONFIG, or start a cluster: pinnace up --merge"
    )


def in_cluster(environment: Mapping[str, str] | None = None, directory: Path = _SERVICE_ACCOUNT) -> Access:
    """Return the access of the cluster that this pod runs in, with the pod's service account."""
    environment = os.environ if environment is None else environment
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not (directory / "token").exists():
        raise KubeconfigError(f"this is not a pod: KUBERNETES_SERVICE_HOST or {directory / 'token'} is missing")
    ca, namespace = directory / "ca.crt", directory / "namespace"
    return Access(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        ca=ca.read_bytes() if ca.exists() else b"",
        credentials=TokenFile(directory / "token"),
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
    )


def files_of(environment: Mapping[str, str], path: Path | None = None) -> list[Path]:
    """Return the files to read, in order: `path`, those of KUBECONFIG, or ~/.kube/config."""
    if path is not None:
        return [path]
    named = [Path(part) for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    return named or [Path(environment.get("HOME") or Path.home()) / ".kube" / "config"]


def load(files: list[Path], *, must_exist: bool = False) -> Object:
    """Merge several kubeconfigs: of entries with the same name the first wins. Paths become absolute.

    Missing files are skipped, unless the file must exist.
    """
    merged: Object = {}
    for file in files:
        if not file.exists():
            if must_exist:
                raise KubeconfigError(f"the kubeconfig {file} does not exist")
            continue
        config = _read(file)
        if config.get("current-context"):
            merged.setdefault("current-context", config["current-context"])
        for section, inner in (("clusters", "cluster"), ("users", "user"), ("contexts", "context")):
            known = {entry["name"] for entry in merged.setdefault(section, [])}
            for entry in config.get(section) or ():
                if entry.get("name") not in known:
                    content = _with_absolute_paths(entry.get(inner) or {}, file.absolute().parent)
                    merged[section].append({"name": entry.get("name"), inner: content})
    return merged


def access_of(config: Object, context: str = "") -> Access:
    """Return the access of a context; of the current one if none is named."""
    name = context or config.get("current-context") or ""
    chosen = _entry(config, "contexts", "context", name)
    cluster = _entry(config, "clusters", "cluster", chosen.get("cluster") or "")
    user = _entry(config, "users", "user", chosen["user"]) if chosen.get("user") else {}
    if not cluster.get("server"):
        raise KubeconfigError(f"the cluster {chosen.get('cluster')!r} of the kubeconfig has no server")
    return Access(
        server=str(cluster["server"]).rstrip("/"),
        ca=_data(cluster, "certificate-authority"),
        insecure=bool(cluster.get("insecure-skip-tls-verify")),
        server_name=cluster.get("tls-server-name") or "",
        proxy=cluster.get("proxy-url") or "",
        credentials=_credentials(user, cluster),
        headers=impersonation(user),
        namespace=chosen.get("namespace") or "default",
    )


def _read(file: Path) -> Object:
    import yaml  # noqa: PLC0415 - in a pod there is no kubeconfig to read.

    try:
        config = yaml.load(file.read_bytes(), yaml.CSafeLoader)
    except (OSError, yaml.YAMLError) as error:
        raise KubeconfigError(f"the kubeconfig {file} cannot be read: {error}") from error
    if config is None:
        return {}
    if not isinstance(config, dict):
        raise KubeconfigError(f"{file} is not a kubeconfig: it is not a mapping")
    return config


def _with_absolute_paths(content: Object, directory: Path) -> Object:
    absolute = dict(content)
    for name in ("certificate-authority", "client-certificate", "client-key", "tokenFile"):
        if content.get(name):
            absolute[name] = str(directory / content[name])
    plugin = content.get("exec")
    if isinstance(plugin, dict) and "/" in str(plugin.get("command")):  # A bare name is looked for on the PATH.
        absolute["exec"] = {**plugin, "command": str(directory / plugin["command"])}
    return absolute


def _entry(config: Object, section: str, inner: str, name: str, *, instead: str = "") -> Object:
    """Return the entry of a name. Without a name it may be missing if something else gives its content `instead`."""
    known: dict[str, Object] = {str(entry["name"]): entry[inner] for entry in config.get(section) or ()}
    if name in known:
        return known[name]
    if not name and instead:
        return {}
    raise KubeconfigError(f"the kubeconfig has no {inner} {name!r}; it has: {', '.join(known) or 'none'}")


def _data(content: Object, name: str) -> bytes:
    """Return the data in the kubeconfig, or the content of the file that it names. Data wins, as in kubectl."""
    if content.get(f"{name}-data"):
        try:
            return base64.b64decode(content[f"{name}-data"])
        except binascii.Error as error:
            raise KubeconfigError(f"{name}-data of the kubeconfig is not base64") from error
    if not content.get(name):
        return b""
    try:
        return Path(content[name]).read_bytes()
    except OSError as error:
        raise KubeconfigError(f"{name} of the kubeconfig cannot be read: {error}") from error


def _credentials(user: Object, cluster: Object) -> CredentialSource:
    certificate, key = _data(user, "client-certificate"), _data(user, "client-key")
    if user.get("exec"):
        return FromExecPlugin(_plugin(user["exec"], cluster))
    if user.get("tokenFile") and not certificate:
        return TokenFile(Path(user["tokenFile"]))
    provider = (user.get("auth-provider") or {}).get("config") or {}
    token = user.get("token") or provider.get("id-token") or provider.get("access-token") or ""
    if not token and user.get("tokenFile"):
        token = Path(user["tokenFile"]).read_text().strip()
    if token:
        authorization = f"Bearer {token}"
    elif user.get("username"):
        pair = f"{user['username']}:{user.get('password') or ''}"
        authorization = "Basic " + base64.b64encode(pair.encode()).decode()
    else:
        authorization = ""
    return Fixed(Identity(authorization=authorization, certificate=certificate, key=key))


def _plugin(content: Mapping[str, Any], cluster: Object) -> ExecPlugin:
    if not content.get("command") or not content.get("apiVersion"):
        raise KubeconfigError("exec in the kubeconfig needs a command and an apiVersion")
    info: Object | None = None
    if content.get("provideClusterInfo"):
        info = {"server": cluster["server"]}
        ca = _data(cluster, "certificate-authority")
        if ca:
            info["certificate-authority-data"] = base64.b64encode(ca).decode()
        for name in ("insecure-skip-tls-verify", "tls-server-name", "proxy-url"):
            if cluster.get(name):
                info[name] = cluster[name]
        for extension in cluster.get("extensions") or ():
            if extension.get("name") == _EXEC_CLUSTER:
                info["config"] = extension.get("extension")
    return ExecPlugin(
        command=content["command"],
        args=tuple(str(arg) for arg in content.get("args") or ()),
        env={pair["name"]: str(pair["value"]) for pair in content.get("env") or ()},
        api_version=content["apiVersion"],
        install_hint=content.get("installHint") or "",
        interactive=content.get("interactiveMode") or "IfAvailable",
        cluster=info,
    )


def impersonation(user: Object) -> tuple[tuple[str, str], ...]:
    """Return the headers for the user that a kubeconfig's user acts as: its `as`, `as-uid`, `as-groups` and so on."""
    headers = []
    if user.get("as"):
        headers.append(("Impersonate-User", str(user["as"])))
    if user.get("as-uid"):
        headers.append(("Impersonate-Uid", str(user["as-uid"])))
    headers += [("Impersonate-Group", str(group)) for group in user.get("as-groups") or ()]
    for name, values in (user.get("as-user-extra") or {}).items():
        headers += [(f"Impersonate-Extra-{quote(name, safe='')}", str(value)) for value in values]
    return tuple(headers)


_NAME = "chosen"


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
        access = find_access(path=flags.kubeconfig, context=flags.context, environment=environment)
        return replace(access, namespace=flags.namespace or access.namespace)
    context = _context(config, flags)
    cluster = _entry(config, "clusters", "cluster", flags.cluster or context.get("cluster") or "", instead=flags.server)
    user = _entry(config, "users", "user", flags.user or context.get("user") or "", instead="any")
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
    return _entry(config, "contexts", "context", name, instead="" if flags.context else flags.server or flags.cluster)


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
