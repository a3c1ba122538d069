"""`pinnace up`: run a cluster in the foreground until SIGINT or SIGTERM."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pinnace.auth.authentication.oidc import Provider
from pinnace.auth.authentication.service_accounts import ISSUER
from pinnace.auth.settings import AuthSettings
from pinnace.cli.agent_options import AgentCount, EgressFlag
from pinnace.cli.audit_flags import audit_settings
from pinnace.cli.control import ControlFlag
from pinnace.cli.flag_groups import with_flags
from pinnace.cli.flag_values import (
    build_admission_settings,
    choose_data_dir,
    parse_minor,
    parse_ranges,
    parse_seconds,
    split_list,
)
from pinnace.cli.foreground import run_cluster
from pinnace.cli.load_balancer_flags import LoadBalancers, find_load_balancers
from pinnace.cli.oidc_flags import oidc_providers
from pinnace.cli.own_node import NodeFlag, checked_egress, own_node_name
from pinnace.cli.sharing_flags import AdvertiseAddress, PortSharing, ShutdownDelay, advertise_address, shutdown_delay
from pinnace.cli.simulation_flags import StagesFile, UsageFile
from pinnace.cli.store_flags import etcd_settings
from pinnace.cluster import kubeconfig
from pinnace.cluster.auditing import AuditSettings
from pinnace.cluster.settings import KeyFiles, Settings
from pinnace.network.service_range import SERVICE_RANGE
from pinnace.store.etcd.settings import EtcdSettings


@with_flags("etcd", etcd_settings)
@with_flags("oidc", oidc_providers)
@with_flags("audit", audit_settings)
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
    oidc: tuple[Provider, ...] = (),
    authentication_token_webhook_config_file: Annotated[
        Path | None, typer.Option(help="A kubeconfig for the webhook that receives TokenReviews.", show_default=False)
    ] = None,
    authorization_webhook_config_file: Annotated[
        Path | None,
        typer.Option(help="A kubeconfig for the webhook that receives SubjectAccessReviews.", show_default=False),
    ] = None,
    audit: AuditSettings = AuditSettings(),  # noqa: B008 - replaced by the flags
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
    load_balancers: LoadBalancers = "",
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

    \b
    Examples:
      pinnace up --merge                        kubectl uses it; on Linux this machine runs pods
      pinnace up --nodes 3                      simulate three nodes, without containers
      pinnace up --ephemeral --port 0 --kubeconfig /tmp/try      for a script: wait for the file, then use it
      pinnace up --kubernetes-version 1.31      the API of that minor version
      pinnace up --data-dir ~/two --port 6444   a second cluster beside the first
    """
    settings = Settings(
        data_dir=choose_data_dir(data_dir, ephemeral=ephemeral),
        etcd=etcd,
        host=host,
        port=port,
        shares_port=permit_port_sharing,
        advertise_address=advertise_address(advertised),
        kubernetes_version=parse_minor(kubernetes_version),
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
            providers=oidc,
            token_webhook=authentication_token_webhook_config_file,
            authorization_webhook=authorization_webhook_config_file,
            authorization_modes=split_list(authorization_mode),
            token_keys=tuple(service_account_key_file or ()),
            issuer=service_account_issuer,
        ),
        admission=build_admission_settings(enable_admission_plugins, disable_admission_plugins),
        key_files=KeyFiles(tls_cert_file, tls_private_key_file, client_ca_file, service_account_signing_key_file),
        service_ranges=parse_ranges(service_cluster_ip_range),
        load_balancers=find_load_balancers(load_balancers),
        audit=audit,
        request_timeout=parse_seconds("--request-timeout", request_timeout),
        min_request_timeout=min_request_timeout,
        shutdown_delay=shutdown_delay(shutdown_delay_duration, is_shared=etcd is not None),
        encryption_key_file=encryption_key_file,
        accept_data_loss=accept_data_loss,
    )
    run_cluster(settings, kubeconfig_path, run or (), merge=merge, has_control=control)
