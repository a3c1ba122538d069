"""Parses the flags of kube-apiserver and etcd, in the syntax of the real programs."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

_TRUE = frozenset(("", "1", "t", "T", "TRUE", "true", "True"))
_FALSE = frozenset(("0", "f", "F", "FALSE", "false", "False"))


class FlagError(ValueError):
    """A flag is unknown or has no usable value. The message names the supported ones."""


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag that a program accepts."""

    help: str
    is_switch: bool = False
    has_effect: bool = True


def _accepted(name: str, *, is_switch: bool = False) -> Flag:
    return Flag(f"Accepted, without effect: {name}.", is_switch=is_switch, has_effect=False)


KUBE_APISERVER: Mapping[str, Flag] = {
    "advertise-address": Flag("The address of the API in its own Endpoints."),
    "allow-privileged": _accepted("privileged containers are always allowed", is_switch=True),
    "anonymous-auth": Flag("Serve requests without credentials.", is_switch=True),
    "api-audiences": Flag("The audiences of service account tokens; the issuer by default."),
    "audit-log-compress": Flag("Compress rotated audit logs.", is_switch=True),
    "audit-log-maxage": Flag("The days to keep rotated audit logs."),
    "audit-log-maxbackup": Flag("The number of rotated audit logs to keep."),
    "audit-log-maxsize": Flag("Rotate the audit log at this size, in megabytes."),
    "audit-log-format": _accepted("the format is json"),
    "audit-log-mode": _accepted("the mode is blocking"),
    "audit-log-path": Flag("Write audit events to this file; - for standard output."),
    "audit-policy-file": Flag("The audit policy."),
    "audit-webhook-batch-buffer-size": Flag("The most audit events that wait to be sent."),
    "audit-webhook-batch-max-size": Flag("The most audit events in a batch."),
    "audit-webhook-batch-max-wait": Flag("The longest delay before a batch of audit events is sent."),
    "audit-webhook-config-file": Flag("A kubeconfig for the webhook that receives audit events."),
    "audit-webhook-initial-backoff": Flag("The delay before the first retry of a batch."),
    "audit-webhook-mode": _accepted("the mode is batch"),
    "authentication-config": Flag("An AuthenticationConfiguration: OpenID Connect issuers, and who may be anonymous."),
    "authentication-token-webhook-cache-ttl": _accepted("answers are cached as by default"),
    "authentication-token-webhook-config-file": Flag("A kubeconfig for the webhook that receives TokenReviews."),
    "authentication-token-webhook-version": _accepted("the version is v1"),
    "authorization-config": Flag("An AuthorizationConfiguration, instead of the modes."),
    "authorization-mode": Flag("Authorizers in their order: Node, RBAC, Webhook, AlwaysAllow, AlwaysDeny."),
    "authorization-webhook-config-file": Flag("A kubeconfig for the webhook that receives SubjectAccessReviews."),
    "bind-address": Flag("The address to listen on."),
    "cert-dir": Flag("The directory with apiserver.crt and apiserver.key."),
    "client-ca-file": Flag("CAs whose certificates authenticate users."),
    "delete-collection-workers": _accepted("collections are deleted by one worker"),
    "disable-admission-plugins": Flag("Admission plug-ins to disable, separated by commas."),
    "enable-admission-plugins": Flag("Admission plug-ins to enable, separated by commas."),
    "enable-aggregator-routing": _accepted("requests go to ready endpoints", is_switch=True),
    "enable-bootstrap-token-auth": _accepted("bootstrap tokens are always known", is_switch=True),
    "enable-priority-and-fairness": _accepted("priority and fairness is always on", is_switch=True),
    "etcd-cafile": _accepted("etcd is reached without TLS"),
    "etcd-certfile": _accepted("etcd is reached without TLS"),
    "etcd-keyfile": _accepted("etcd is reached without TLS"),
    "etcd-prefix": Flag("The prefix of all keys: servers with different prefixes share nothing."),
    "etcd-servers": Flag("The address of the etcd program of this folder."),
    "event-ttl": _accepted("events live for one hour"),
    "external-hostname": _accepted("the host name comes from the request"),
    "feature-gates": Flag("Feature gates to switch on or off: A=true,B=false."),
    "kubelet-client-certificate": _accepted("the cluster's own certificate is shown to kubelets"),
    "kubelet-client-key": _accepted("the cluster's own certificate is shown to kubelets"),
    "max-mutating-requests-inflight": _accepted("priority levels limit requests"),
    "max-requests-inflight": _accepted("priority levels limit requests"),
    "min-request-timeout": Flag("The shortest duration, in seconds, of a watch without a timeout."),
    "profiling": _accepted("there are no profiling pages", is_switch=True),
    "proxy-client-cert-file": _accepted("the cluster's own certificate is shown to aggregated servers"),
    "proxy-client-key-file": _accepted("the cluster's own certificate is shown to aggregated servers"),
    "request-timeout": Flag("The longest duration of a request, except watches and other streams."),
    "requestheader-allowed-names": _accepted("front proxies have certificates of the cluster's own CA"),
    "requestheader-client-ca-file": _accepted("front proxies have certificates of the cluster's own CA"),
    "requestheader-extra-headers-prefix": _accepted("the prefix is X-Remote-Extra-"),
    "requestheader-group-headers": _accepted("the header is X-Remote-Group"),
    "requestheader-username-headers": _accepted("the header is X-Remote-User"),
    "runtime-config": Flag("APIs to switch on or off: api/alpha=true, apps/v1=false."),
    "secure-port": Flag("The port to listen on."),
    "service-account-issuer": Flag("The issuer of service account tokens."),
    "service-account-key-file": Flag("Keys or certificates that verify service account tokens."),
    "service-account-signing-key-file": Flag("The private key that signs service account tokens: RSA or EC."),
    "service-cluster-ip-range": Flag("The addresses of Services."),
    "service-node-port-range": _accepted("the range is 30000-32767"),
    "storage-backend": _accepted("the storage is the etcd program of this folder"),
    "storage-media-type": _accepted("objects are stored as JSON"),
    "tls-cert-file": Flag("The serving certificate."),
    "tls-private-key-file": Flag("The key of the serving certificate."),
    "token-auth-file": Flag('Static tokens: lines of token,user,uid,"group1,group2".'),
    "v": _accepted("the log is short"),
    "vmodule": _accepted("the log is short"),
    "watch-cache": _accepted("the watch cache is always on", is_switch=True),
}

ETCD: Mapping[str, Flag] = {
    "advertise-client-urls": _accepted("there is one member"),
    "auto-compaction-mode": _accepted("the server compacts"),
    "auto-compaction-retention": _accepted("the server compacts"),
    "data-dir": Flag("The directory that keeps the data from a clean stop to the next start."),
    "election-timeout": _accepted("there is one member"),
    "heartbeat-interval": _accepted("there is one member"),
    "initial-advertise-peer-urls": _accepted("there is one member"),
    "initial-cluster": _accepted("there is one member"),
    "initial-cluster-state": _accepted("there is one member"),
    "initial-cluster-token": _accepted("there is one member"),
    "listen-client-urls": Flag("The addresses that answer health checks, such as http://127.0.0.1:2379."),
    "listen-metrics-urls": _accepted("there are no metrics"),
    "listen-peer-urls": _accepted("there is one member"),
    "log-level": _accepted("the log is short"),
    "log-outputs": _accepted("the log goes to standard error"),
    "logger": _accepted("the log is short"),
    "max-request-bytes": _accepted("the API server limits requests"),
    "max-snapshots": _accepted("there are no snapshots"),
    "max-wals": _accepted("there is no write-ahead log"),
    "name": _accepted("there is one member"),
    "quota-backend-bytes": _accepted("memory is the limit"),
    "snapshot-count": _accepted("there are no snapshots"),
    "unsafe-no-fsync": _accepted("data is written at a clean stop", is_switch=True),
    "wal-dir": _accepted("there is no write-ahead log"),
}


class Flags:
    """The parsed flags of one program. A flag may be given more than once."""

    def __init__(self, values: Mapping[str, Sequence[str]]) -> None:
        self._values = values

    def text(self, name: str, default: str = "") -> str:
        """Return the last value."""
        return self._values[name][-1] if self._values.get(name) else default

    def items(self, name: str) -> tuple[str, ...]:
        """Return all values, also those separated by commas."""
        parts = (part.strip() for value in self._values.get(name, ()) for part in value.split(","))
        return tuple(part for part in parts if part)

    def number(self, name: str, default: int) -> int:
        """Return the value as a whole number. Raise FlagError."""
        text = self.text(name, str(default))
        try:
            return int(text)
        except ValueError:
            raise FlagError(f"--{name}={text}: expected a whole number") from None

    def is_on(self, name: str) -> bool:
        """Whether a switch is given and not false. Raise FlagError for another value."""
        if name not in self._values:
            return False
        text = self.text(name)
        if text in _TRUE or text in _FALSE:
            return text in _TRUE
        raise FlagError(f"--{name}={text}: expected true or false")


def parse(program: str, known: Mapping[str, Flag], args: Sequence[str]) -> Flags:
    """Parse arguments. Raise FlagError for an unknown flag, with the supported ones."""
    values: dict[str, list[str]] = {}
    rest = iter(args)
    for arg in rest:
        if not arg.startswith("-"):
            raise FlagError(f"{program} takes no arguments besides flags, and got {arg!r}")
        name, equals, value = arg.lstrip("-").partition("=")
        name = name.replace("_", "-")
        flag = known.get(name)
        if flag is None:
            raise FlagError(_unknown(program, known, name))
        if not equals and not flag.is_switch:
            value = _next_value(rest, name)
        values.setdefault(name, []).append(value)
    return Flags(values)


def _next_value(rest: Iterator[str], name: str) -> str:
    value = next(rest, None)
    if value is None:
        raise FlagError(f"--{name} needs a value: --{name}=VALUE")
    return value


def _unknown(program: str, known: Mapping[str, Flag], name: str) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f" (did you mean --{near[0]}?)" if near else ""
    return f"unknown flag --{name} of {program}{hint}; supported are " + ", ".join(
        f"--{flag}" for flag in sorted(known)
    )


def help_text(program: str, known: Mapping[str, Flag]) -> str:
    """Return the text of --help: a line for each flag, from which envtest reads the names."""
    lines = [f"{program}, served by pinnace for test suites.", "", "Usage:", f"  {program} [flags]", "", "Flags:"]
    for name, flag in sorted(known.items()):
        kind = "" if flag.is_switch else " string"
        lines.append(f"      --{name}{kind}   {flag.help}")
    lines += ["  -h, --help   Print this text.", "      --version   Print the version."]
    return "\n".join(lines) + "\n"
