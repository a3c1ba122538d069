"""Opens the audit backends that the settings ask for: a log file, a webhook, or both."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pinnace.auth.remote import read_remote
from pinnace.process.clock import AlarmClock, SystemClock
from pinnace.server.audit.events import AuditBackend, Auditor
from pinnace.server.audit.log import AuditLog, Rotation
from pinnace.server.audit.policy import AuditPolicyError, read_policy
from pinnace.server.audit.webhook import AuditWebhook, BatchOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """The audit policy and its backends. Without a policy nothing is audited."""

    policy_file: Path | None = None
    log_path: Path | None = None
    """A file, or - for standard output."""
    rotation: Rotation = field(default_factory=Rotation)
    webhook: Path | None = None
    """A kubeconfig of the server that receives events."""
    batching: BatchOptions = field(default_factory=BatchOptions)


def open_audit(settings: AuditSettings, *, clock: AlarmClock | None = None) -> Auditor | None:
    """Return the configured auditor, or None. Raise AuditPolicyError for incomplete settings, and RemoteConfigError."""
    if settings.policy_file is None and settings.log_path is None and settings.webhook is None:
        return None
    if settings.policy_file is None:
        raise AuditPolicyError("an audit needs a policy: --audit-policy-file is missing")
    if settings.log_path is None and settings.webhook is None:
        raise AuditPolicyError(
            "an audit policy needs somewhere to write: --audit-log-path or --audit-webhook-config-file is missing"
        )
    clock = clock or SystemClock()
    policy = read_policy(settings.policy_file)
    backends: list[AuditBackend] = []
    if settings.webhook is not None:
        backends.append(AuditWebhook(read_remote(settings.webhook).send, clock, settings.batching))
    if settings.log_path is not None:
        try:
            backends.append(AuditLog(settings.log_path, settings.rotation, clock=clock))
        except OSError as error:
            raise AuditPolicyError(f"the audit log {settings.log_path} cannot be written ({error.strerror})") from None
    return Auditor(policy, backends, clock)
