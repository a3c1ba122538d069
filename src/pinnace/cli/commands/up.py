"""`pinnace up`: a cluster in the foreground, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from pinnace import __version__
from pinnace.auth.authentication.oidc import Provider
from pinnace.auth.authentication.tokens import TokenFileError
from pinnace.auth.certificates.authority import CertificateError
from pinnace.auth.remote import RemoteConfigError
from pinnace.auth.settings import AuthSettings
from pinnace.cli import STARTED
from pinnace.cluster import kubeconfig
from pinnace.cluster.auditing import AuditSettings
from pinnace.cluster.cluster import running
from pinnace.cluster.kubeconfig import ClusterAccess, KubeconfigWriteError
from pinnace.cluster.settings import Settings
from pinnace.kinds.definitions import NoDefinitions, minors
from pinnace.node.simulated.stages import InvalidStage
from pinnace.schema.cel.times import parse_duration
from pinnace.schema.cel.values import NANOS
from pinnace.server.audit.log import Rotation
from pinnace.server.audit.policy import AuditPolicyError
from pinnace.server.audit.webhook import BatchOptions
from pinnace.store.store import StoreError

COLLECT_AFTER = (20_000, 20, 50)
"""Stored objects live long and form no cycles: looking through them at Python's own pace costs a write 7 % more."""

_UNUSABLE = (CertificateError, TokenFileError, RemoteConfigError, AuditPolicyError)


def default_data_dir() -> Path:
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "pinnace"


def up(
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Where the cluster keeps its state, certificates and kubeconfig.", show_default=False),
    ] = None,
    ephemeral: Annotated[
        bool, typer.Option("--ephemeral", help="Keep everything in memory and leave nothing behind.")
    ] = False,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen on; 0 takes a free one.", min=0, max=65535)] = 6443,
    kubeconfig_path: Annotated[
        Path | None,
        typer.Option(
            "--kubeconfig",
            help="Write a kubeconfig here, complete, at the moment the cluster is ready.",
            show_default=False,
        ),
    ] = None,
    merge: Annotated[
        bool, typer.Option("--merge", help="Also add the cluster to your own kubeconfig and make it the current one.")
    ] = False,
    name: Annotated[str, typer.Option(help="What the cluster is called in kubeconfigs.")] = kubeconfig.DEFAULT_NAME,
    kubernetes_version: Annotated[
        str, typer.Option(help="The minor of Kubernetes whose API is served, such as 1.31.", show_default="newest")
    ] = "",
    no_old_versions: Annotated[
        bool,
        typer.Option(
            "--no-old-versions", help="Do not serve API versions that Kubernetes has removed, as it would not."
        ),
    ] = False,
    no_controllers: Annotated[
        bool,
        typer.Option(
            "--no-controllers",
            help="Serve the API alone: namespaces are not emptied, and nothing that has lost its owner is removed.",
        ),
    ] = False,
    nodes: Annotated[
        int,
        typer.Option(
            help="Simulate this many nodes (node-0, …): pods are scheduled and run through their stages, without "
            "containers.",
            min=0,
            max=10_000,
        ),
    ] = 0,
    stages: Annotated[
        Path | None,
        typer.Option(
            help="A file of KWOK Stages (kwok.x-k8s.io/v1alpha1) that simulated nodes and their pods go through.",
            show_default=False,
        ),
    ] = None,
    token_auth_file: Annotated[
        Path | None, typer.Option(help='Static tokens: lines of token,user,uid,"group1,group2".', show_default=False)
    ] = None,
    oidc_issuer_url: Annotated[
        str, typer.Option(help="Believe the tokens of this OpenID Connect issuer.", show_default=False)
    ] = "",
    oidc_client_id: Annotated[str, typer.Option(help="Whom its tokens must be for.", show_default=False)] = "",
    oidc_username_claim: Annotated[str, typer.Option(help="The claim that names the user.")] = "sub",
    oidc_username_prefix: Annotated[
        str, typer.Option(help="Put before the user's name; - for nothing.", show_default="ISSUER#")
    ] = "",
    oidc_groups_claim: Annotated[str, typer.Option(help="The claim that lists groups.", show_default=False)] = "",
    oidc_groups_prefix: Annotated[str, typer.Option(help="Put before each group.", show_default=False)] = "",
    oidc_required_claim: Annotated[
        list[str] | None,
        typer.Option(metavar="<name=value>", help="Must be claimed. May be said again.", show_default=False),
    ] = None,
    oidc_ca_file: Annotated[
        Path | None, typer.Option(help="Who signs the issuer's certificate.", show_default="the system's")
    ] = None,
    oidc_signing_algs: Annotated[str, typer.Option(help="Algorithms that it may sign with.")] = "RS256",
    authentication_token_webhook_config_file: Annotated[
        Path | None, typer.Option(help="A kubeconfig: where to send TokenReviews.", show_default=False)
    ] = None,
    authorization_webhook_config_file: Annotated[
        Path | None, typer.Option(help="A kubeconfig: where to send SubjectAccessReviews.", show_default=False)
    ] = None,
    audit_policy_file: Annotated[
        Path | None, typer.Option(help="An audit policy: which requests are written down.", show_default=False)
    ] = None,
    audit_log_path: Annotated[
        Path | None, typer.Option(help="The file to write them to, a line each; - for here.", show_default=False)
    ] = None,
    audit_log_maxsize: Annotated[
        int, typer.Option(help="Megabytes after which the file is put aside and a new one begun.", min=0)
    ] = 100,
    audit_log_maxbackup: Annotated[
        int, typer.Option(help="How many files that were put aside are kept; 0 for all.", min=0)
    ] = 0,
    audit_log_maxage: Annotated[int, typer.Option(help="For how many days they are kept; 0 for ever.", min=0)] = 0,
    audit_log_compress: Annotated[
        bool, typer.Option("--audit-log-compress", help="Compress files that are put aside.")
    ] = False,
    audit_webhook_config_file: Annotated[
        Path | None, typer.Option(help="A kubeconfig: where to send them, many at a time.", show_default=False)
    ] = None,
    audit_webhook_batch_max_size: Annotated[int, typer.Option(help="How many go together at most.", min=1)] = 400,
    audit_webhook_batch_max_wait: Annotated[
        str, typer.Option(help="How long they wait for each other at most.")
    ] = "30s",
    audit_webhook_batch_buffer_size: Annotated[
        int, typer.Option(help="How many may wait to be sent; what is more is lost.", min=1)
    ] = 10_000,
    audit_webhook_initial_backoff: Annotated[
        str, typer.Option(help="How long until what could not be sent is sent again, at first.")
    ] = "10s",
    request_timeout: Annotated[
        str, typer.Option(help="How long a request may take, unless it goes on by its nature, as a watch does.")
    ] = "1m0s",
    min_request_timeout: Annotated[
        int, typer.Option(help="Seconds that a watch lasts at least whose client does not say how long.", min=1)
    ] = 1800,
    encryption_key_file: Annotated[
        Path | None,
        typer.Option(
            help="Encrypt secrets where they are stored: lines of NAME:KEY, 32 bytes in base64, the newest first. "
            "All of the keys decrypt; every start encrypts anew what is not encrypted with the first.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Start a cluster in the foreground and say how to reach it. Ctrl-C stops it.

    The first start makes a certificate authority, an admin and the namespaces that every cluster has. State is kept in
    the data directory, so that the next start goes on where this one stopped.
    """
    if ephemeral and data_dir is not None:
        _fail("--ephemeral keeps nothing, so it cannot be combined with --data-dir; leave one of them out")
    wanted = kubernetes_version.removeprefix("v")
    if wanted and wanted not in minors():
        _fail(f"Kubernetes {wanted} cannot be served; choose one of {', '.join(minors())}")
    providers: tuple[Provider, ...] = ()
    if oidc_client_id and not oidc_issuer_url:
        _fail("--oidc-client-id says whom tokens must be for, but not whose: --oidc-issuer-url is missing")
    if oidc_issuer_url:
        try:
            provider = Provider(
                issuer_url=oidc_issuer_url,
                client_id=oidc_client_id,
                username_claim=oidc_username_claim,
                username_prefix=oidc_username_prefix,
                groups_claim=oidc_groups_claim,
                groups_prefix=oidc_groups_prefix,
                required_claims=dict(_pair(claim) for claim in oidc_required_claim or ()),
                ca_file=oidc_ca_file,
                signing_algorithms=tuple(oidc_signing_algs.split(",")),
            )
        except ValueError as error:
            _fail(str(error))
        providers = (provider,)
    settings = Settings(
        data_dir=None if ephemeral else (data_dir or default_data_dir()),
        host=host,
        port=port,
        kubernetes_version=wanted,
        name=name,
        old_versions=not no_old_versions,
        controllers=not no_controllers,
        nodes=nodes,
        stages=stages,
        auth=AuthSettings(
            token_file=token_auth_file,
            providers=providers,
            token_webhook=authentication_token_webhook_config_file,
            authorization_webhook=authorization_webhook_config_file,
        ),
        audit=AuditSettings(
            policy_file=audit_policy_file,
            log_path=audit_log_path,
            rotation=Rotation(
                most_bytes=(audit_log_maxsize or 100) * 1024 * 1024,
                most_kept=audit_log_maxbackup,
                longest=timedelta(days=audit_log_maxage),
                compresses=audit_log_compress,
            ),
            webhook=audit_webhook_config_file,
            batching=BatchOptions(
                most_waiting=audit_webhook_batch_buffer_size,
                most_together=audit_webhook_batch_max_size,
                longest_wait=_seconds("--audit-webhook-batch-max-wait", audit_webhook_batch_max_wait),
                first_pause=_seconds("--audit-webhook-initial-backoff", audit_webhook_initial_backoff),
            ),
        ),
        request_timeout=_seconds("--request-timeout", request_timeout),
        min_request_timeout=min_request_timeout,
        encryption_key_file=encryption_key_file,
    )
    if stages is not None and not nodes:
        _fail("--stages is for simulated nodes, and there are none; add --nodes N")
    _allow_many_connections()
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(settings, kubeconfig_path, merge=merge))
    except (StoreError, *_UNUSABLE, KubeconfigWriteError, NoDefinitions, InvalidStage, OSError) as error:
        _fail(str(error))


async def _serve(settings: Settings, kubeconfig_path: Path | None, *, merge: bool) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    paths = []
    if settings.data_dir is not None:
        paths.append(settings.data_dir / "kubeconfig")
    if kubeconfig_path is not None:
        paths.append(kubeconfig_path)

    gc.set_threshold(*COLLECT_AFTER)

    def tell(access: ClusterAccess) -> None:
        gc.freeze()  # What is there by now stays: kinds, schemas, code.
        if merge:
            kubeconfig.merge(kubeconfig.user_kubeconfig(), access, use=True)
        for path in paths:  # The one that was asked for comes last: who waits for it finds all else done.
            kubeconfig.write(path, access)

    async with running(settings, before_ready=tell) as cluster:
        _say_ready(cluster.url, paths, merge=merge, seconds=time.monotonic() - STARTED)
        await stop.wait()
        print("stopping: requests in flight finish, watches end", file=sys.stderr, flush=True)


def _say_ready(url: str, paths: list[Path], *, merge: bool, seconds: float) -> None:
    print(f"pinnace {__version__} is ready at {url} ({seconds:.2f} s)")
    if merge:
        print("  kubectl get namespaces")
    elif paths:
        print(f"  export KUBECONFIG={paths[-1]}")
        print("  kubectl get namespaces")
    else:
        print("  no kubeconfig was asked for: start with --kubeconfig PATH or --merge to have one")
    print("Ctrl-C stops it.", flush=True)


def _allow_many_connections() -> None:
    """Each client is an open file, and the usual limit of these is for programs that have few."""
    try:
        import resource  # noqa: PLC0415 - not on every platform
    except ImportError:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # Some systems tell of more than they grant.
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 - not on every platform
    except ImportError:
        return None
    return uvloop.Loop


def _pair(claim: str) -> tuple[str, str]:
    name, equals, value = claim.partition("=")
    if not equals:
        raise ValueError(f"--oidc-required-claim {claim}: expected name=value")
    return name, value


def _seconds(option: str, text: str) -> float:
    """A duration as Go's programs are told it."""
    try:
        seconds = parse_duration(text).nanos / NANOS
    except ValueError:
        seconds = 0.0
    if seconds <= 0:
        _fail(f"{option} {text}: expected a duration such as 30s or 1m30s")
    return seconds


def _fail(message: str) -> NoReturn:
    print(f"pinnace: {message}", file=sys.stderr)
    raise typer.Exit(1)
