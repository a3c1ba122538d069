"""`pinnace run`: run the operator in a file, in the current cluster or in a temporary one."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from contextlib import AsyncExitStack
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from pinnace.cli.extensions.reloading import Loaded, load, next_loaded
from pinnace.cli.failure import fail
from pinnace.cli.flags.shared import Context, OperatorFile, OperatorModule
from pinnace.cli.progress import progress
from pinnace.client import kubeconfig_files as kubeconfigs
from pinnace.client.client import Client
from pinnace.client.connect import connect
from pinnace.client.kubeconfig import Access, find_access, impersonation
from pinnace.client.transport import ConnectionLost
from pinnace.cluster.cluster import running
from pinnace.cluster.settings import Settings
from pinnace.model import errors
from pinnace.model.users import service_account_groups, service_account_name
from pinnace.process.file_watch import Saves
from pinnace.sdk.command.main import START_FAILURES, describe_failure
from pinnace.sdk.command.operator_files import target_of
from pinnace.sdk.extension import Extension, NodePlugin
from pinnace.sdk.handlers.threads import MAX_THREADS
from pinnace.sdk.installation.installation import install_account, install_external_definitions
from pinnace.sdk.operator.logs import configure_logs
from pinnace.sdk.operator.operator import Operator
from pinnace.sdk.operator.process import run_until_signal
from pinnace.sdk.operator.why_answers import answer_why

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def run(
    file: OperatorFile = "",
    module: OperatorModule = "",
    dev: Annotated[
        bool, typer.Option("--dev", help="Start a temporary cluster, which ends with the operator.")
    ] = False,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(help="The kubeconfig to use; with --dev, the file to write.", show_default="kubectl's"),
    ] = None,
    context: Context = "",
    namespace: Annotated[str, typer.Option("-n", "--namespace", help="The namespace of its lease.")] = "",
    no_install: Annotated[
        bool, typer.Option("--no-install", help="Do not install CRDs and webhook configurations.")
    ] = False,
    leader_election: Annotated[
        bool, typer.Option("--leader-election", help="Work only while this replica holds the lease.")
    ] = False,
    webhook_host: Annotated[str, typer.Option(help="The address to serve webhooks on.")] = "127.0.0.1",
    webhook_port: Annotated[int, typer.Option(help="The port for webhooks; 0 takes a free one.")] = 0,
    webhook_service: Annotated[
        str, typer.Option(help="The Service of the webhooks, as namespace/name.", show_default=False)
    ] = "",
    reload: Annotated[bool, typer.Option("--reload/--no-reload", help="Restart when the file is saved.")] = True,
    metrics_port: Annotated[
        int | None, typer.Option(help="Serve /metrics, /healthz and /readyz on this port.", show_default=False)
    ] = None,
    extender_port: Annotated[
        int | None,
        typer.Option(help="Serve a scheduler's functions as an HTTP extender on this port.", show_default=False),
    ] = None,
    max_threads: Annotated[int, typer.Option(help="The most threads for `def` handlers.", min=1)] = MAX_THREADS,
    log_format: Annotated[str, typer.Option(help="text, or json: one object per line.")] = "text",
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    yes: Annotated[
        bool, typer.Option("-y", "--yes", help="Change a cluster on another machine without asking.")
    ] = False,
    root_dir: Annotated[
        Path, typer.Option(help="Of a plug-in of nodes: the directory of the node's kubelet, with its sockets.")
    ] = Path("/var/lib/kubelet"),
    nodes: Annotated[int, typer.Option(help="With --dev: simulate this many nodes.", min=0, max=10_000)] = 0,
    rights: Annotated[
        str,
        typer.Option(help="With --dev: role, only what its generated role allows; or admin, everything."),
    ] = "role",
) -> None:
    """Run the operator, scheduler or plug-in of nodes in a file until Ctrl-C. The kinds are installed first.

    When the file, or one beside it that it imports, is saved, the changes are printed and the new operator replaces
    the old one; the cluster of --dev keeps its objects. A file that cannot be loaded is ignored.

    \b
    Examples:
      pinnace run my_scheduler.py --dev --nodes 3     a scheduler, with a cluster of three simulated nodes
      pinnace run website.py --dev              with a cluster of its own; the kubeconfig's path is printed
      pinnace run website.py                    against the current context
      pinnace run website.py:operator -n web    one of several operators; its lease is kept in web
      pinnace run -m shop.operators:website     a module of a package, also in src/
      pinnace run website.py --metrics-port 8080 --log-format json
      pinnace why website/blog                  meanwhile: why was it reconciled?
    """
    _configure_logs(log_level, log_format)
    options: dict[str, Any] = {
        "install": not no_install,
        "leader_election": leader_election,
        "webhook_host": webhook_host,
        "webhook_port": webhook_port,
        "webhook_service": webhook_service,
        "metrics_port": metrics_port,
    } | ({} if extender_port is None else {"extender_port": extender_port})
    try:
        if rights not in ("role", "admin"):
            fail(f"there are no rights {rights}: choose role or admin")
        loaded = load(target_of(file, module))
        if isinstance(loaded.program, NodePlugin):
            asyncio.run(run_until_signal(_run_on_node(loaded.program, root_dir)))
            return
        if isinstance(loaded.operator, Operator):
            options["max_threads"] = max_threads
        if not dev and not no_install:
            _confirm(loaded.operator, find_access(path=kubeconfig, context=context), context, is_agreed=yes)
        if dev:
            asyncio.run(_run_in_new_cluster(loaded, kubeconfig, options, nodes, reload=reload, rights=rights))
        else:
            asyncio.run(_run(loaded, kubeconfig, context, namespace, options, reload=reload))
    except ConnectionLost as error:
        fail(f"{error}; start a cluster with pinnace up --merge, or add --dev for a temporary one")
    except START_FAILURES as error:
        fail(describe_failure(error))


async def _run_on_node(plugin: NodePlugin, directory: Path) -> None:
    print(f"{plugin.name} serves the node with the sockets in {directory}; Ctrl-C stops it.", flush=True)
    await plugin.run(directory)


def _configure_logs(level: str, form: str) -> None:
    if form not in ("text", "json"):
        fail(f"there is no log format {form}: choose text or json")
    try:
        configure_logs(level=level, form="json" if form == "json" else "text")
    except ValueError as error:
        fail(error)


def _confirm(operator: Extension, access: Access, context: str, *, is_agreed: bool) -> None:
    """Name the cluster that is about to change; ask, unless it is on this machine."""
    host = urlsplit(access.server).hostname or ""
    where = f"the cluster at {access.server}" + (f" (context {context})" if context else " (the current context)")
    if host in _LOOPBACK or is_agreed:
        print(f"{operator.name} runs in {where}", flush=True)
        return
    if not sys.stdin.isatty():
        fail(f"{operator.name} would install its kinds and webhooks in {where}: add --yes, or --no-install")
    if not typer.confirm(f"Install the kinds and webhooks of {operator.name} in {where}?"):
        raise typer.Exit(1)


async def _run(
    loaded: Loaded,
    kubeconfig: Path | None,
    context: str,
    namespace: str,
    options: dict[str, Any],
    *,
    reload: bool,
    is_alone: bool = False,
    rights: str = "admin",
) -> None:
    access = find_access(path=kubeconfig, context=context)
    async with connect(access, namespace=namespace, field_manager=loaded.operator.name) as client:
        working = _Working(client, options, access, is_alone=is_alone, has_role=rights == "role")
        await run_until_signal(working.until_saved(loaded) if reload else working.work(loaded.operator))


async def _run_in_new_cluster(
    loaded: Loaded, kubeconfig: Path | None, options: dict[str, Any], nodes: int, *, reload: bool, rights: str
) -> None:
    import_module("aiohttp")  # Before the cluster runs, which would report the import as a stall of its loop.
    with tempfile.TemporaryDirectory(prefix="pinnace-") as scratch:
        path = kubeconfig or Path(scratch) / "kubeconfig"
        async with running(
            Settings(nodes=nodes), before_ready=lambda access: kubeconfigs.write(path, access)
        ) as cluster:
            print(f"a cluster for {loaded.operator.name} is ready at {cluster.url}")
            print(f"  export KUBECONFIG={path}", flush=True)
            await _run(loaded, path, "", "", options, reload=reload, is_alone=True, rights=rights)


class _Working:
    """A running operator, and the one that replaces it when its file is saved. The cluster stays."""

    def __init__(
        self, client: Client, options: dict[str, Any], access: Access, *, is_alone: bool, has_role: bool
    ) -> None:
        """`is_alone` if the cluster was started for the operator: then it also installs the external kinds it uses.

        With `has_role` the operator acts as a ServiceAccount with its generated role, as it will once it is deployed.
        """
        self._client = client
        self._is_alone = is_alone
        self._has_role = has_role
        self._options = options
        self._access = access

    async def until_saved(self, loaded: Loaded) -> None:
        """Run, and restart after each save. Only the first start may fail: later errors are printed."""
        with Saves() as saves:
            is_first = True
            while True:
                saves.watch(loaded.files)
                working = asyncio.ensure_future(self.work(loaded.operator))
                saved = asyncio.ensure_future(next_loaded(loaded, saves))
                try:
                    await asyncio.wait((working, saved), return_when=asyncio.FIRST_COMPLETED)
                    if working.done():
                        if is_first or working.cancelled():
                            await working
                        _print_failure(loaded.operator.name, working.exception())
                        await asyncio.wait((saved,))
                    loaded, is_first = saved.result(), False
                finally:
                    for task in (saved, working):
                        task.cancel()
                    await asyncio.wait((working, saved))

    async def work(self, operator: Extension) -> None:
        async with AsyncExitStack() as stack:
            with progress(f"installing {operator.name}"):
                if self._is_alone and self._options["install"] and isinstance(operator, Operator):
                    await install_external_definitions(self._client, operator.declarations)
                client, options = self._client, self._options
                if self._has_role:
                    client = await stack.enter_async_context(await self._connect_as_account(operator))
                    options = {**options, "installer": self._client}
                manager = await stack.enter_async_context(operator.running(client, **options))
            await stack.enter_async_context(answer_why(manager, server=self._access.server))
            if self._options.get("leader_election"):
                print(f"{operator.name} is ready, and works while it holds its lease; Ctrl-C stops it.", flush=True)
            else:
                print(f"{operator.name} is running; Ctrl-C stops it.", flush=True)
            if isinstance(operator, Operator) and operator.declarations.is_empty:
                print(
                    f"note: {operator.name} has no handler; write @operator.reconcile(KIND) above a function",
                    flush=True,
                )
            await asyncio.get_running_loop().create_future()

    async def _connect_as_account(self, operator: Extension) -> Client:
        """Install the operator's generated account and roles, and return a client that acts as it."""
        namespace = self._client.namespace
        await install_account(self._client, operator.account(namespace))
        account = service_account_name(namespace, operator.name)
        headers = impersonation({"as": account, "as-groups": service_account_groups(namespace)})
        access = replace(self._access, headers=headers)
        return connect(access, namespace=namespace, field_manager=operator.name)


def _print_failure(name: str, error: BaseException | None) -> None:
    message = describe_failure(error) if isinstance(error, errors.Forbidden) else error
    print(f"pinnace: {name} could not start: {message}", file=sys.stderr)
    print("the cluster still runs; save the file to retry.", file=sys.stderr, flush=True)
