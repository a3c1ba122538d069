"""The settings of a server from the flags of kube-apiserver."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from pinnace.auth.authentication.service_accounts import ISSUER
from pinnace.auth.certificates.authority import KeyFiles
from pinnace.auth.settings import AuthSettings
from pinnace.cluster.settings import AdmissionSettings, Settings, parse_service_ranges
from pinnace.kinds.catalog import check_runtime_config
from pinnace.kinds.definitions import Definitions, minors
from pinnace.kinds.feature_gates.gates import FeatureGates, InvalidFeatureGates
from pinnace.kinds.runtime_config import InvalidRuntimeConfig, RuntimeConfig
from pinnace.schema.cel.times import parse_duration
from pinnace.schema.cel.values import NANOS
from pinnace.server.audit.log import Rotation
from pinnace.server.audit.settings import AuditSettings
from pinnace.server.audit.webhook import BatchOptions
from pinnace.testing.envtest.flags import FlagError, Flags

CONTROLLERS = "PINNACE_CONTROLLERS"
_MINOR = re.compile(r"v?(1\.\d{1,3})(\D|$)")


def settings_of(flags: Flags, *, program: Path, directory: Path, environment: Mapping[str, str]) -> Settings:
    """Return the settings. Relative paths are below `directory`. Raise FlagError.

    The folder of the program names the Kubernetes minor, as in setup-envtest's store: 1.36.0-linux-amd64.
    """
    has_controllers = environment.get(CONTROLLERS, "") not in ("", "0", "false")
    paths = _Paths(flags, directory)
    minor = _minor_of(program.parent.name)
    gates, config = _versions_of(flags, minor or minors()[-1])
    return Settings(
        host=flags.text("bind-address", "127.0.0.1"),
        port=flags.number("secure-port", 6443),
        kubernetes_version=minor,
        feature_gates=gates,
        runtime_config=config,
        controllers=has_controllers,
        scheduler=has_controllers,
        auth=_auth_of(flags, paths),
        audit=_audit_of(flags, paths),
        admission=_admission_of(flags),
        key_files=_key_files_of(paths),
        service_ranges=_service_ranges_of(flags),
        advertise_address=flags.text("advertise-address"),
        request_timeout=_seconds(flags, "request-timeout", "1m0s"),
        min_request_timeout=flags.number("min-request-timeout", 1800),
    )


def _versions_of(flags: Flags, minor: str) -> tuple[str, str]:
    """Return the checked values of the feature gates and of the runtime config."""
    gates, config = ",".join(flags.items("feature-gates")), ",".join(flags.items("runtime-config"))
    try:
        FeatureGates.parse(minor, gates)
    except InvalidFeatureGates as error:
        raise FlagError(f"--feature-gates={gates}: {error}") from None
    try:
        if config:
            check_runtime_config(RuntimeConfig.parse(config), Definitions.load(minor))
    except InvalidRuntimeConfig as error:
        raise FlagError(f"--runtime-config={config}: {error}") from None
    return gates, config


class _Paths:
    def __init__(self, flags: Flags, directory: Path) -> None:
        self._flags = flags
        self.directory = directory

    def path(self, name: str) -> Path | None:
        text = self._flags.text(name)
        return self.directory / text if text else None

    def paths(self, name: str) -> tuple[Path, ...]:
        return tuple(self.directory / text for text in self._flags.items(name))


def _auth_of(flags: Flags, paths: _Paths) -> AuthSettings:
    issuers = flags.items("service-account-issuer")
    return AuthSettings(
        token_file=paths.path("token-auth-file"),
        configuration=paths.path("authentication-config"),
        anonymous=flags.is_on("anonymous-auth") if flags.text("anonymous-auth") else None,
        authorization_configuration=paths.path("authorization-config"),
        token_webhook=paths.path("authentication-token-webhook-config-file"),
        authorization_webhook=paths.path("authorization-webhook-config-file"),
        authorization_modes=flags.items("authorization-mode") or ("AlwaysAllow",),
        token_keys=paths.paths("service-account-key-file"),
        issuer=issuers[0] if issuers else ISSUER,
        audiences=flags.items("api-audiences"),
    )


def _admission_of(flags: Flags) -> AdmissionSettings:
    disabled = frozenset(flags.items("disable-admission-plugins"))
    enabled = frozenset(flags.items("enable-admission-plugins"))
    default = frozenset(("ServiceAccount",)) - disabled
    return AdmissionSettings(enabled=enabled | default, disabled=disabled)


def _key_files_of(paths: _Paths) -> KeyFiles:
    """Return the files of the flags; the serving pair may also be in --cert-dir."""
    certificate, key = paths.path("tls-cert-file"), paths.path("tls-private-key-file")
    folder = paths.path("cert-dir")
    if certificate is None and key is None and folder is not None:
        pair = (folder / "apiserver.crt", folder / "apiserver.key")
        certificate, key = pair if all(path.exists() for path in pair) else (None, None)
    return KeyFiles(
        certificate=certificate,
        key=key,
        client_ca=paths.path("client-ca-file"),
        signing_key=paths.path("service-account-signing-key-file"),
    )


def _service_ranges_of(flags: Flags) -> tuple[str, ...]:
    ranges = ",".join(flags.items("service-cluster-ip-range") or ("10.0.0.0/24",))
    try:
        return parse_service_ranges(ranges)
    except ValueError as error:
        raise FlagError(f"--service-cluster-ip-range={ranges}: {error}") from None


def _audit_of(flags: Flags, paths: _Paths) -> AuditSettings:
    log_path = flags.text("audit-log-path")
    return AuditSettings(
        policy_file=paths.path("audit-policy-file"),
        log_path=Path("-") if log_path == "-" else paths.path("audit-log-path"),
        rotation=Rotation(
            most_bytes=(flags.number("audit-log-maxsize", 100) or 100) * 1024 * 1024,
            most_kept=flags.number("audit-log-maxbackup", 0),
            longest=timedelta(days=flags.number("audit-log-maxage", 0)),
            compresses=flags.is_on("audit-log-compress"),
        ),
        webhook=paths.path("audit-webhook-config-file"),
        batching=BatchOptions(
            most_waiting=flags.number("audit-webhook-batch-buffer-size", 10_000),
            most_together=flags.number("audit-webhook-batch-max-size", 400),
            longest_wait=_seconds(flags, "audit-webhook-batch-max-wait", "30s"),
            first_pause=_seconds(flags, "audit-webhook-initial-backoff", "10s"),
        ),
    )


def _seconds(flags: Flags, name: str, default: str) -> float:
    text = flags.text(name, default)
    try:
        return parse_duration(text).nanos / NANOS
    except ValueError:
        raise FlagError(f"--{name}={text}: expected a duration such as 30s or 1m30s") from None


def _minor_of(folder: str) -> str:
    """Return the minor that a folder's name begins with, or "" for the newest. Raise FlagError if it is not served."""
    match = _MINOR.match(folder)
    if match is None:
        return ""
    if match.group(1) not in minors():
        raise FlagError(
            f"Kubernetes {match.group(1)} of the folder {folder} cannot be served; use {', '.join(minors())}"
        )
    return match.group(1)
