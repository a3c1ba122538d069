"""The flags of `pinnace up` for audit: the policy, the log and the webhook."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from pinnace.cli.flags.values import parse_seconds
from pinnace.server.audit.log import Rotation
from pinnace.server.audit.settings import AuditSettings
from pinnace.server.audit.webhook import BatchOptions


def audit_settings(
    *,
    audit_policy_file: Annotated[
        Path | None, typer.Option(help="The audit policy, which selects the requests to record.", show_default=False)
    ] = None,
    audit_log_path: Annotated[
        Path | None,
        typer.Option(
            help="Write audit events to this file, one JSON line each; - for standard output.", show_default=False
        ),
    ] = None,
    audit_log_maxsize: Annotated[
        int, typer.Option(help="Rotate the audit log at this size, in megabytes.", min=0)
    ] = 100,
    audit_log_maxbackup: Annotated[
        int, typer.Option(help="The number of rotated audit logs to keep; 0 for all.", min=0)
    ] = 0,
    audit_log_maxage: Annotated[int, typer.Option(help="The days to keep rotated audit logs; 0 for ever.", min=0)] = 0,
    audit_log_compress: Annotated[
        bool, typer.Option("--audit-log-compress", help="Compress rotated audit logs.")
    ] = False,
    audit_webhook_config_file: Annotated[
        Path | None,
        typer.Option(help="A kubeconfig for the webhook that receives batches of audit events.", show_default=False),
    ] = None,
    audit_webhook_batch_max_size: Annotated[int, typer.Option(help="The most events in a batch.", min=1)] = 400,
    audit_webhook_batch_max_wait: Annotated[
        str, typer.Option(help="The longest delay before a batch is sent.")
    ] = "30s",
    audit_webhook_batch_buffer_size: Annotated[
        int, typer.Option(help="The most events that wait to be sent; further ones are dropped.", min=1)
    ] = 10_000,
    audit_webhook_initial_backoff: Annotated[
        str, typer.Option(help="The delay before the first retry of a batch.")
    ] = "10s",
) -> AuditSettings:
    """Return the audit policy and its backends. Exit if a duration is wrong."""
    rotation = Rotation(
        most_bytes=(audit_log_maxsize or 100) * 1024 * 1024,
        most_kept=audit_log_maxbackup,
        longest=timedelta(days=audit_log_maxage),
        compresses=audit_log_compress,
    )
    batching = BatchOptions(
        most_waiting=audit_webhook_batch_buffer_size,
        most_together=audit_webhook_batch_max_size,
        longest_wait=parse_seconds("--audit-webhook-batch-max-wait", audit_webhook_batch_max_wait),
        first_pause=parse_seconds("--audit-webhook-initial-backoff", audit_webhook_initial_backoff),
    )
    return AuditSettings(
        policy_file=audit_policy_file,
        log_path=audit_log_path,
        rotation=rotation,
        webhook=audit_webhook_config_file,
        batching=batching,
    )
