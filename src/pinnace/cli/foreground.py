"""Runs a cluster in the foreground of a terminal: start it, say how to reach it, stop it at a signal."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pinnace import __version__
from pinnace.cli import STARTED
from pinnace.cli.control import StartCluster, control_error, controlled_cluster
from pinnace.cli.failure import fail
from pinnace.cli.first_commands import first_commands
from pinnace.cli.progress import progress
from pinnace.cli.simulation_flags import simulation_error
from pinnace.cli.stop_signals import StartStopped, StopSignals
from pinnace.client.kubeconfig import access_of
from pinnace.cluster import kubeconfig
from pinnace.cluster.cluster import running
from pinnace.cluster.event_loop import allow_many_connections, loop_factory
from pinnace.cluster.health.memory_trim import share_arena
from pinnace.cluster.kubeconfig import ClusterAccess, KubeconfigWriteError
from pinnace.cluster.settings import Settings
from pinnace.cluster.startup_errors import STARTUP_ERRORS
from pinnace.kinds.definitions import NoDefinitions
from pinnace.node.simulated.stages import InvalidStage, InvalidUsage

if TYPE_CHECKING:
    from pinnace.sdk.extension import Extension

COLLECT_AFTER = (20_000, 20, 50)
"""Stored objects live long and form no cycles: Python's default thresholds cost a write 7 % more."""


def run_cluster(
    settings: Settings, kubeconfig_path: Path | None, files: Sequence[str], *, merge: bool, has_control: bool
) -> None:
    """Run a cluster with these settings, and the operators in these files, until a signal stops it."""
    start = _checked_start(settings, has_control=has_control)
    _run(_serve(start, settings, kubeconfig_path, _load_extensions(files), merge=merge))


def _checked_start(settings: Settings, *, has_control: bool) -> StartCluster:
    """Return how to run the cluster. Exit if the settings do not go together."""
    if error := simulation_error(settings):
        fail(error)
    if has_control and (error := control_error(settings)):
        fail(error)
    return controlled_cluster if has_control else running


def _load_extensions(targets: Sequence[str]) -> list[Extension]:
    if not targets:
        return []
    from pinnace.cli.operator_files import NoOperator, extension_in  # noqa: PLC0415 - it loads pydantic, which takes long

    try:
        return [extension_in(target) for target in targets]
    except NoOperator as error:
        fail(error)


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
    except (*STARTUP_ERRORS, KubeconfigWriteError, NoDefinitions, InvalidStage, InvalidUsage) as error:
        fail(error)


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
