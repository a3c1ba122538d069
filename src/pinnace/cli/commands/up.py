"""`pinnace up`: run a cluster in the foreground until SIGINT or SIGTERM."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from pinnace import __version__
from pinnace.auth.authentication.oidc import Provider
from pinnace.auth.authentication.service_accounts import ISSUER
from pinnace.auth.authentication.tokens import TokenFileError
from pinnace.auth.certificates.authority import CertificateError
from pinnace.auth.remote import RemoteConfigError
from pinnace.auth.settings import AuthSettings
from pinnace.cli import STARTED
from pinnace.cli.agent_options import AgentCount, EgressFlag
from pinnace.cli.control import ControlFlag, StartCluster, control_error, controlled_cluster
from pinnace.cli.data_directory import default_data_dir
from pinnace.cli.first_commands import first_commands
from pinnace.cli.own_node import NodeFlag, checked_egress, own_node_name
from pinnace.cli.progress import progress
from pinnace.cli.sharing_flags import AdvertiseAddress, PortSharing, ShutdownDelay, advertise_address, shutdown_delay
from pinnace.cli.simulation_flags import StagesFile, UsageFile, simulation_error
from pinnace.cli.stop_signals import StartStopped, StopSignals
from pinnace.cli.store_flags import with_store_flags
from pinnace.client.kubeconfig import access_of
from pinnace.cluster import kubeconfig
from pinnace.cluster.auditing import AuditSettings
from pinnace.cluster.bootstrap.creation import BootstrapError
from pinnace.cluster.cluster import running
from pinnace.cluster.event_loop import allow_many_connections, loop_factory
from pinnace.cluster.health.memory_trim import share_arena
from pinnace.cluster.kubeconfig import ClusterAccess, KubeconfigWriteError
from pinnace.cluster.request.admission import AdmissionPluginError
from pinnace.cluster.request.security import AuthorizationModeError
from pinnace.cluster.settings import AdmissionSettings, KeyFiles, Settings, parse_service_ranges
from pinnace.kinds.definitions import NoDefinitions, minors
from pinnace.network.service_range import SERVICE_RANGE
from pinnace.node.simulated.stages import InvalidStage, InvalidUsage
from pinnace.schema.cel.times import parse_duration
from pinnace.schema.cel.values import NANOS
from pinnace.server.audit.log import Rotation
from pinnace.server.audit.policy import AuditPolicyError
from pinnace.server.audit.webhook import BatchOptions
from pinnace.store.etcd.settings import EtcdSettings
from pinnace.store.store import StoreError

if TYPE_CHECKING:
    from pinnace.sdk.extension import Extension

COLLECT_AFTER = (20_000, 20, 50)
"""Stored objects live long and form no cycles: Python's default thresholds cost a write 7 % more."""

_UNUSABLE = (
    CertificateError,
    TokenFileError,
    RemoteConfigError,
    AuditPolicyError,
    BootstrapError,
    AuthorizationModeError,
    AdmissionPluginError,
)


@with_store_flags
def up(
    data_dir: Annotated[
        Path | None,
        typer.Option(help="The directory for state, certificates and kubeconfig.", show_default=False),
    ] = None,
    etcd: EtcdSettings | None = None,
    ephemeral: Annotated[
        bool, typer.Option("--ephemeral", help="Keep everything in memory and leave nothing behind.")
    ] = False,
    control: ControlFlag = False,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen on; 0 takes a free one.", min=0, max=65535)] = 6443,
    permit_port_sharing: PortSharing = False,
    advertised: AdvertiseAddress = "",
    kubeconfig_path: Annotated[
        Path | None,
        typer.Option(
            "--kubeconfig",
            help="Write a kubeconfig to this file when the cluster is ready.",
            show_default=False,
        ),
    ] = None,
    merge: Annotated[
        bool, typer.Option("--merge", help="Also add the cluster to your own kubeconfig and make it the current one.")
    ] = False,
    name: Annotated[str, typer.Option(help="The cluster's name in kubeconfigs.")] = kubeconfig.DEFAULT_NAME,
    kubernetes_version: Annotated[
        str, typer.Option(help="The Kubernetes minor version to serve, such as 1.31.", show_default="newest")
    ] = "",
    no_old_versions: Annotated[
        bool,
        typer.Option("--no-old-versions", help="Do not serve API versions that Kubernetes has removed."),
    ] = False,
    no_controllers: Annotated[
        bool,
        typer.Option(
            "--no-controllers",
            help="Run no controllers: deleted namespaces are not emptied, and orphans are not garbage collected.",
        ),
    ] = False,
    node: NodeFlag = None,
    agents: AgentCount = 1,
    egress: EgressFlag = False,
    no_scheduler: Annotated[
        bool, typer.Option("--no-scheduler", help="Run no scheduler: pods wait until another one binds them to nodes.")
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
    run: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="Also run the operator or scheduler in this file, as pinnace run does; may be repeated.",
            show_default=False,
        ),
    ] = None,
    stages: StagesFile = None,
    usage: UsageFile = None,
    token_auth_file: Annotated[
        Path | None, typer.Option(help='Static tokens: lines of token,user,uid,"group1,group2".', show_default=False)
    ] = None,
    oidc_issuer_url: Annotated[
        str, typer.Option(help="Accept the tokens of this OpenID Connect issuer.", show_default=False)
    ] = "",
    oidc_client_id: Annotated[
        str, typer.Option(help="The audience that OIDC tokens must carry.", show_default=False)
    ] = "",
    oidc_username_claim: Annotated[str, typer.Option(help="The claim with the user's name.")] = "sub",
    oidc_username_prefix: Annotated[
        str, typer.Option(help="The prefix of users' names; - for none.", show_default="ISSUER#")
    ] = "",
    oidc_groups_claim: Annotated[str, typer.Option(help="The claim with the user's groups.", show_default=False)] = "",
    oidc_groups_prefix: Annotated[str, typer.Option(help="The prefix of groups' names.", show_default=False)] = "",
    oidc_required_claim: Annotated[
        list[str] | None,
        typer.Option(
            metavar="<name=value>", help="A claim that tokens must carry; may be repeated.", show_default=False
        ),
    ] = None,
    oidc_ca_file: Annotated[
        Path | None, typer.Option(help="The CA of the issuer's certificate.", show_default="the system's")
    ] = None,
    oidc_signing_algs: Annotated[
        str, typer.Option(help="The signing algorithms to accept, separated by commas.")
    ] = "RS256",
    authentication_token_webhook_config_file: Annotated[
        Path | None, typer.Option(help="A kubeconfig for the webhook that receives TokenReviews.", show_default=False)
    ] = None,
    authorization_webhook_config_file: Annotated[
        Path | None,
        typer.Option(help="A kubeconfig for the webhook that receives SubjectAccessReviews.", show_default=False),
    ] = None,
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
    tls_cert_file: Annotated[
        Path | None,
        typer.Option(help="Serve with this certificate, and its chain.", show_default="the cluster's own"),
    ] = None,
    tls_private_key_file: Annotated[
        Path | None, typer.Option(help="The key of --tls-cert-file.", show_default=False)
    ] = None,
    client_ca_file: Annotated[
        Path | None,
        typer.Option(help="Also authenticate users by certificates of these CAs.", show_default=False),
    ] = None,
    service_account_issuer: Annotated[str, typer.Option(help="The issuer of service account tokens.")] = ISSUER,
    service_account_signing_key_file: Annotated[
        Path | None,
        typer.Option(help="Sign service account tokens with this key, RSA or EC.", show_default="the cluster's own"),
    ] = None,
    service_account_key_file: Annotated[
        list[Path] | None,
        typer.Option(
            help="Also accept service account tokens that these keys, or the keys of these certificates, have signed; "
            "may be repeated.",
            show_default=False,
        ),
    ] = None,
    service_cluster_ip_range: Annotated[
        str, typer.Option(help="The addresses of Services; with an IPv4 and an IPv6 range the cluster is dual-stack.")
    ] = SERVICE_RANGE,
    authorization_mode: Annotated[
        str,
        typer.Option(
            help="Authorizers in their order: Node, RBAC, Webhook, AlwaysAllow, AlwaysDeny.", show_default="Node,RBAC"
        ),
    ] = "",
    enable_admission_plugins: Annotated[
        str, typer.Option(help="Admission plug-ins to enable, separated by commas.", show_default=False)
    ] = "",
    disable_admission_plugins: Annotated[
        str, typer.Option(help="Admission plug-ins to disable, separated by commas.", show_default=False)
    ] = "",
    request_timeout: Annotated[
        str, typer.Option(help="The longest duration of a request, except watches and other streams.")
    ] = "1m0s",
    shutdown_delay_duration: ShutdownDelay = "",
    min_request_timeout: Annotated[
        int, typer.Option(help="The shortest duration, in seconds, of a watch without a timeout.", min=1)
    ] = 1800,
    encryption_key_file: Annotated[
        Path | None,
        typer.Option(
            help="Encrypt stored secrets: lines of NAME:KEY, 32 bytes in base64, the newest first. All keys decrypt; "
            "each start encrypts again what is not encrypted with the first key.",
            show_default=False,
        ),
    ] = None,
    accept_data_loss: Annotated[
        bool,
        typer.Option("--accept-data-loss", help="Start though acknowledged writes are missing from the stored state."),
    ] = False,
) -> None:
    """Start a cluster in the foreground and print how to reach it. Ctrl-C stops it.

    The first start creates a certificate authority, an administrator and the default namespaces. State is kept in the
    data directory, from which the next start continues.
    """
    providers = _oidc_providers(
        issuer_url=oidc_issuer_url,
        client_id=oidc_client_id,
        username_claim=oidc_username_claim,
        username_prefix=oidc_username_prefix,
        groups_claim=oidc_groups_claim,
        groups_prefix=oidc_groups_prefix,
        required_claims=oidc_required_claim or (),
        ca_file=oidc_ca_file,
        signing_algorithms=tuple(oidc_signing_algs.split(",")),
    )
    settings = Settings(
        data_dir=_data_dir(data_dir, ephemeral=ephemeral),
        etcd=etcd,
        host=host,
        port=port,
        shares_port=permit_port_sharing,
        advertise_address=_address(advertised),
        kubernetes_version=_served_minor(kubernetes_version),
        name=name,
        old_versions=not no_old_versions,
        controllers=not no_controllers,
        scheduler=not no_scheduler,
        nodes=nodes,
        node=own_node_name(node if agents == 1 else True, is_useful=not nodes and not no_controllers and not control),
        agents=agents,
        has_egress=checked_egress(wanted=egress),
        stages=stages,
        usage=usage,
        auth=AuthSettings(
            token_file=token_auth_file,
            providers=providers,
            token_webhook=authentication_token_webhook_config_file,
            authorization_webhook=authorization_webhook_config_file,
            authorization_modes=_split(authorization_mode),
            token_keys=tuple(service_account_key_file or ()),
            issuer=service_account_issuer,
        ),
        admission=_admission(enable_admission_plugins, disable_admission_plugins),
        key_files=KeyFiles(tls_cert_file, tls_private_key_file, client_ca_file, service_account_signing_key_file),
        service_ranges=_service_ranges(service_cluster_ip_range),
        audit=AuditSettings(
            policy_file=audit_policy_file,
            log_path=audit_log_path,
            rotation=_rotation(audit_log_maxsize, audit_log_maxbackup, audit_log_maxage, compresses=audit_log_compress),
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
        shutdown_delay=_delay(shutdown_delay_duration, is_shared=etcd is not None),
        encryption_key_file=encryption_key_file,
        accept_data_loss=accept_data_loss,
    )
    _run_cluster(settings, kubeconfig_path, run or (), merge=merge, has_control=control)


def _run_cluster(
    settings: Settings, kubeconfig_path: Path | None, files: Sequence[str], *, merge: bool, has_control: bool
) -> None:
    start = _checked_start(settings, has_control=has_control)
    _run(_serve(start, settings, kubeconfig_path, _load_extensions(files), merge=merge))


def _data_dir(chosen: Path | None, *, ephemeral: bool) -> Path | None:
    if ephemeral and chosen is not None:
        _fail("--ephemeral keeps nothing, so it cannot be combined with --data-dir; leave one of them out")
    return None if ephemeral else (chosen or default_data_dir())


def _checked_start(settings: Settings, *, has_control: bool) -> StartCluster:
    """Return how to run the cluster. Exit if the settings do not go together."""
    if error := simulation_error(settings):
        _fail(error)
    if has_control and (error := control_error(settings)):
        _fail(error)
    return controlled_cluster if has_control else running


def _served_minor(version: str) -> str:
    wanted = version.removeprefix("v")
    if wanted and wanted not in minors():
        _fail(f"Kubernetes {wanted} cannot be served; choose one of {', '.join(minors())}")
    return wanted


def _address(advertised: str) -> str:
    try:
        return advertise_address(advertised)
    except ValueError as error:
        _fail(str(error))


def _delay(duration: str, *, is_shared: bool) -> float:
    try:
        return shutdown_delay(duration, is_shared=is_shared)
    except ValueError as error:
        _fail(str(error))


def _oidc_providers(*, issuer_url: str, required_claims: Sequence[str], **options: Any) -> tuple[Provider, ...]:
    if not issuer_url:
        if options["client_id"]:
            _fail("--oidc-client-id needs --oidc-issuer-url, the issuer of the tokens; add it")
        return ()
    try:
        claims = dict(_pair(claim) for claim in required_claims)
        return (Provider(issuer_url=issuer_url, required_claims=claims, **options),)
    except ValueError as error:
        _fail(str(error))


def _load_extensions(targets: Sequence[str]) -> list[Extension]:
    if not targets:
        return []
    from pinnace.cli.operator_files import NoOperator, extension_in  # noqa: PLC0415 - it loads pydantic, which takes long

    try:
        return [extension_in(target) for target in targets]
    except NoOperator as error:
        _fail(str(error))


async def _run_extensions(stack: AsyncExitStack, access: ClusterAccess, extensions: Sequence[Extension]) -> None:
    if not extensions:
        return
    from pinnace.client.connect import connect  # noqa: PLC0415 - aiohttp takes long to import

    for extension in extensions:
        own = access_of(kubeconfig.kubeconfig_of(access))
        client = await stack.enter_async_context(connect(own, field_manager=extension.name))
        await stack.enter_async_context(extension.running(client))
        print(f"{extension.name} is running", flush=True)


def _run(serving: Coroutine[Any, Any, None]) -> None:
    allow_many_connections()
    share_arena()
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(serving)
    except StartStopped:
        return
    except (StoreError, *_UNUSABLE, KubeconfigWriteError, NoDefinitions, InvalidStage, InvalidUsage, OSError) as error:
        _fail(str(error))


async def _serve(
    start: StartCluster,
    settings: Settings,
    kubeconfig_path: Path | None,
    extensions: Sequence[Extension],
    *,
    merge: bool,
) -> None:
    signals = StopSignals()
    paths = []
    if settings.data_dir is not None:
        paths.append(settings.data_dir / "kubeconfig")
    if kubeconfig_path is not None:
        paths.append(kubeconfig_path)

    gc.set_threshold(*COLLECT_AFTER)

    def write_kubeconfigs(access: ClusterAccess) -> None:
        gc.freeze()  # The objects of now stay: kinds, schemas, code.
        if merge:
            kubeconfig.merge(kubeconfig.user_kubeconfig(), access, use=True)
        for path in paths:  # The one from --kubeconfig is last: a script that waits for it finds all else done.
            kubeconfig.write(path, access)

    async with AsyncExitStack() as stack:
        # Many simulated nodes take seconds to be registered.
        with progress("starting the cluster"), signals.ending_start():
            cluster = await stack.enter_async_context(start(settings, before_ready=write_kubeconfigs))
        gc.freeze()  # So do the controllers, which are loaded last.
        seconds = time.monotonic() - STARTED
        print(f"pinnace {__version__} is ready at {cluster.url} ({seconds:.2f} s). Ctrl-C stops it.")
        print(first_commands(settings, paths[-1] if paths else None, is_merged=merge), flush=True)
        await _run_extensions(stack, cluster.access, extensions)
        await signals.wait()
        print("stopping: requests in flight finish, watches end", file=sys.stderr, flush=True)


def _rotation(megabytes: int, kept: int, days: int, *, compresses: bool) -> Rotation:
    most_bytes = (megabytes or 100) * 1024 * 1024
    return Rotation(most_bytes=most_bytes, most_kept=kept, longest=timedelta(days=days), compresses=compresses)


def _admission(enabled: str, disabled: str) -> AdmissionSettings:
    return AdmissionSettings(enabled=frozenset(_split(enabled)), disabled=frozenset(_split(disabled)))


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _service_ranges(text: str) -> tuple[str, ...]:
    try:
        return parse_service_ranges(text)
    except ValueError as error:
        _fail(f"--service-cluster-ip-range {text}: {error}; expected a range such as {SERVICE_RANGE}")


def _pair(claim: str) -> tuple[str, str]:
    name, equals, value = claim.partition("=")
    if not equals:
        raise ValueError(f"--oidc-required-claim {claim}: expected name=value")
    return name, value


def _seconds(option: str, text: str) -> float:
    """Return the seconds of a duration in Go's format. Exit if it is not one."""
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
