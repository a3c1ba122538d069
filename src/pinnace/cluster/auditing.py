"""Opens what requests are written down in, if a cluster is asked to."""

from __future__ import annotations

from pathlib import Path

from pinnace.model.clock import SystemClock
from pinnace.server.audit import AuditPolicyError, read_policy
from pinnace.server.audit_events import Auditor
from pinnace.server.audit_log import AuditLog


def open_audit(policy_file: Path | None, log_path: Path | None) -> Auditor | None:
    """The auditor of this policy and log; None if neither is wanted. Raises AuditPolicyError for half a wish."""
    if policy_file is None and log_path is None:
        return None
    if policy_file is None or log_path is None:
        missing = "--audit-policy-file" if policy_file is None else "--audit-log-path"
        raise AuditPolicyError(f"an audit needs a policy and a log, and {missing} is missing: give both, or neither")
    policy = read_policy(policy_file)
    try:
        return Auditor(policy, AuditLog(log_path), SystemClock())
    except OSError as problem:
        raise AuditPolicyError(f"the audit log {log_path} cannot be written ({problem.strerror})") from None
