"""`pinnace up`: run a cluster in the foreground until SIGINT or SIGTERM."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pinnace.auth.certificates.authority import KeyFiles
from pinnace.auth.settings import AuthSettings
from pinnace.cli.cluster.foreground import run_cluster
from pinnace.cli.data_directory import use_usual_umask
from pinnace.cli.failure import fail
from pinnace.cli.flags.audit import audit_settings
from pinnace.cli.flags.auth import auth_settings
from pinnace.cli.flags.groups import with_flags
from pinnace.cli.flags.node import EgressFlag, HostImageFlag, checked_egress
from pinnace.cli.flags.store import etcd_settings
from pinnace.cli.flags.values import (
    LoadBalancers,
    advertise_address,
    build_admission_settings,
    choose_data_dir,
    find_load_balancers,
    flag_values,
    parse_ranges,
    parse_seconds,
    shutdown_delay,
)
from pinnace.cli.flags.versions import (
    FeatureGatesFlag,
    KubernetesVersion,
    RuntimeConfigFlag,
    parse_feature_gates,
    parse_minor,
    parse_runtime_config,
)
from pinnace.cli.session import CommandError
from pinnace.client import kubeconfig_files as kubeconfig
from pinnace.cluster.node import with_own_node
from pinnace.cluster.settings import Settings
from pinnace.kinds.services.service_range import SERVICE_RANGE
from pinnace.node.this_machine import NoNode
from pinnace.server.audit.settings import AuditSettings
from pinnace.store.etcd.settings import EtcdSettings

if TYPE_CHECKING:
    from pinnace.scheduler.configuration import SchedulerConfiguration


@with_flags("etcd", etcd_settings)
@with_flags("auth", auth_settings)
@with_flags("audit", audit_settings)
def up(
    context: typer.Context,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="The directory for state, certificates and kubeconfig.", show_default=False),
    ] = None,
    etcd: EtcdSettings | None = None,
    ephemeral: Annotated[
        bool, typer.Option("--ephemeral", help="Keep everything in memory and leave nothing behind.")
    ] = False,
    control: Annotated[
        bool,
        typer.Option(
            "--control",
            help="With --ephemeral: serve /control, with which tests fork the cluster, inject faults, move its clock "
            "and read its history. No pods run on this machine.",
        ),
    ] = False,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen on; 0 takes a free one.", min=0, max=65535)] = 6443,
    permit_port_sharing: Annotated[
        bool,
        typer.Option(
            "--permit-port-sharing",
            help="Listen with SO_REUSEPORT, so that several servers on one etcd share a port of this machine.",
        ),
    ] = False,
    advertised: Annotated[
        str,
        typer.Option(
            "--advertise-address",
            help="The IP address in the endpoints of the Service default/kubernetes, by which others reach this "
            "server.",
            show_default="that of --host",
        ),
    ] = "",
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
    kubernetes_version: KubernetesVersion = "",
    feature_gates: FeatureGatesFlag = "",
    runtime_config: RuntimeConfigFlag = "",
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
    node: Annotated[
        bool | None,
        typer.Option(
            "--node/--no-node",
            help="Run pods on this machine, as a node in a process of its own. PINNACE_NO_NODE=1 is --no-node.",
            show_default="where the machine can, without --nodes",
        ),
    ] = None,
    agents: Annotated[
        int, typer.Option(help="Run this many nodes on this machine, each with pods of its own.", min=1, max=50)
    ] = 1,
    egress: EgressFlag = False,
    host_image: HostImageFlag = None,
    no_scheduler: Annotated[
        bool, typer.Option("--no-scheduler", help="Run no scheduler: pods wait until another one binds them to nodes.")
    ] = False,
    scheduler_config: Annotated[
        Path | None,
        typer.Option(
            help="A KubeSchedulerConfiguration for the scheduler: profiles, plug-ins, extenders.", show_default=False
        ),
    ] = None,
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
    stages: Annotated[
        Path | None,
        typer.Option(
            help="A file of KWOK Stages (kwok.x-k8s.io/v1alpha1) that simulated nodes and their pods go through.",
            show_default=False,
        ),
    ] = None,
    usage: Annotated[
        Path | None,
        typer.Option(
            help="The usage of simulated pods: KWOK's ResourceUsage and ClusterResourceUsage in a .yaml file, or "
            "recorded as CSV with a heading: time,pods,cpu,memory (and namespace, container). "
            "Rows such as 60,app=web,80%,64Mi or 0,app=web,12/pods,.",
            show_default=False,
        ),
    ] = None,
    auth: AuthSettings = AuthSettings(),  # noqa: B008 - replaced by the flags
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
    service_account_signing_key_file: Annotated[
        Path | None,
        typer.Option(help="Sign service account tokens with this key, RSA or EC.", show_default="the cluster's own"),
    ] = None,
    service_cluster_ip_range: Annotated[
        str, typer.Option(help="The addresses of Services; with an IPv4 and an IPv6 range the cluster is dual-stack.")
    ] = SERVICE_RANGE,
    load_balancers: LoadBalancers = "",
    enable_admission_plugins: Annotated[
        str, typer.Option(help="More admission plug-ins to enable, separated by commas.", show_default=False)
    ] = "",
    disable_admission_plugins: Annotated[
        str, typer.Option(help="Default admission plug-ins to disable, separated by commas.", show_default=False)
    ] = "",
    admission_control_config_file: Annotated[
        Path | None,
        typer.Option(
            help="An AdmissionConfiguration: the settings of admission plug-ins, and directories with webhook "
            "configurations and policies.",
            show_default=False,
        ),
    ] = None,
    egress_selector_config_file: Annotated[
        Path | None,
        typer.Option(help="Refused: a server connects to nodes, webhooks and APIs itself.", hidden=True),
    ] = None,
    request_timeout: Annotated[
        str, typer.Option(help="The longest duration of a request, except watches and other streams.")
    ] = "1m0s",
    shutdown_delay_duration: Annotated[
        str,
        typer.Option(
            help="How long the server still serves after SIGTERM. Meanwhile /readyz fails, and each answer closes its "
            "connection, so that clients move to another server.",
            show_default="2s with --store, else 0s",
        ),
    ] = "",
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
    encryption_provider_config: Annotated[
        Path | None,
        typer.Option(
            help="An EncryptionConfiguration: the resources that are encrypted when they are stored, and the keys or "
            "KMS plug-ins that encrypt them.",
            show_default=False,
        ),
    ] = None,
    encryption_provider_config_automatic_reload: Annotated[
        bool,
        typer.Option(
            "--encryption-provider-config-automatic-reload",
            help="Let the EncryptionConfiguration take effect again when it is saved.",
        ),
    ] = False,
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
    use_usual_umask()
    if egress_selector_config_file is not None:
        fail(
            "--egress-selector-config-file is not supported: the server connects to nodes, webhooks and aggregated "
            "APIs itself, and knows no proxies for them; leave it out"
        )
    settings = Settings(
        data_dir=choose_data_dir(data_dir, ephemeral=ephemeral),
        etcd=etcd,
        host=host,
        port=port,
        shares_port=permit_port_sharing,
        advertise_address=advertise_address(advertised),
        kubernetes_version=parse_minor(kubernetes_version),
        feature_gates=parse_feature_gates(feature_gates, kubernetes_version),
        runtime_config=parse_runtime_config(runtime_config, kubernetes_version),
        flags=flag_values(context),
        name=name,
        old_versions=not no_old_versions,
        controllers=not no_controllers,
        scheduler=not no_scheduler,
        scheduler_configuration=_scheduler_configuration(scheduler_config),
        nodes=nodes,
        agents=agents,
        has_egress=checked_egress(wanted=egress),
        has_host_image=host_image,
        stages=stages,
        usage=usage,
        auth=auth,
        admission=build_admission_settings(
            enable_admission_plugins, disable_admission_plugins, admission_control_config_file
        ),
        key_files=KeyFiles(tls_cert_file, tls_private_key_file, client_ca_file, service_account_signing_key_file),
        service_ranges=parse_ranges(service_cluster_ip_range),
        load_balancers=find_load_balancers(load_balancers),
        audit=audit,
        request_timeout=parse_seconds("--request-timeout", request_timeout),
        min_request_timeout=min_request_timeout,
        shutdown_delay=shutdown_delay(shutdown_delay_duration, is_shared=etcd is not None),
        encryption_key_file=encryption_key_file,
        encryption_configuration=encryption_provider_config,
        reloads_encryption=encryption_provider_config_automatic_reload,
        accept_data_loss=accept_data_loss,
    )
    try:
        # A cluster with a control endpoint runs pods nowhere, unless the user wants that.
        settings = with_own_node(settings, wanted=False if control and node is None else node)
    except NoNode as why:
        print(f"Pods cannot run on this machine: {why}.", file=sys.stderr)
    run_cluster(settings, kubeconfig_path, run or (), merge=merge, has_control=control)


def _scheduler_configuration(path: Path | None) -> SchedulerConfiguration | None:
    """Return the configuration in a file. Exit if it cannot be used."""
    if path is None:
        return None
    # The scheduler loads numpy: a start without a file must not wait for it.
    from pinnace.cli.explain.scheduler_profiles import read_configuration  # noqa: PLC0415
    from pinnace.scheduler.configuration import InvalidConfiguration, build_profiles  # noqa: PLC0415
    from pinnace.scheduler.framework.plugin import Handle  # noqa: PLC0415

    try:
        configuration = read_configuration(path)
        build_profiles(configuration, Handle())  # Unknown plug-ins and bad arguments are found here.
    except CommandError as error:
        fail(error)
    except InvalidConfiguration as error:
        fail(f"{path}: {error}")
    return configuration
