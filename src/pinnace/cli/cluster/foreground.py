"""Runs a cluster in the foreground of a terminal: start it, say how to reach it, stop it at a signal."""

from __future__ import annotations

import asyncio
import gc
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from pinnace import __version__
from pinnace.auth.certificates.authority import KeyFiles
from pinnace.cli import STARTED
from pinnace.cli.failure import fail
from pinnace.cli.progress import progress
from pinnace.client import kubeconfig_files as kubeconfig
from pinnace.client.kubeconfig import access_of, files_of
from pinnace.client.kubeconfig_files import ClusterAccess, KubeconfigWriteError
from pinnace.cluster.cluster import STARTUP_ERRORS, running
from pinnace.cluster.secret_files import check_secret_files
from pinnace.cluster.settings import Settings
from pinnace.kinds.definitions import NoDefinitions
from pinnace.node.simulated.stages import InvalidStage, InvalidUsage
from pinnace.process.event_loop import allow_many_connections, loop_factory, stop_signals
from pinnace.process.memory_trim import share_arena
from pinnace.server.audit.settings import AuditSettings
from pinnace.server.http.memory_reserve import check_memory_limits

if TYPE_CHECKING:
    from pinnace.sdk.extension import Extension

COLLECT_AFTER = (20_000, 20, 50)
"""Stored objects live long and form no cycles: Python's default thresholds cost a write 7 % more."""


def run_cluster(
    settings: Settings, kubeconfig_path: Path | None, files: Sequence[str], *, merge: bool, has_control: bool
) -> None:
    """Run a cluster with these settings, and the operators in these files, until a signal stops it."""
    if error := simulation_error(settings) or (control_error(settings) if has_control else ""):
        fail(error)
    serving = _serve(settings, kubeconfig_path, _load_extensions(files), merge=merge, has_control=has_control)
    allow_many_connections()
    share_arena()
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(serving)
    except StartStopped:
        return
    except (*STARTUP_ERRORS, KubeconfigWriteError, NoDefinitions, InvalidStage, InvalidUsage) as error:
        fail(error)


def simulation_error(settings: Settings) -> str:
    """Return why the settings of the simulation do not go together; empty if they do."""
    for flag, file in (("--stages", settings.stages), ("--usage", settings.usage)):
        if file is not None and not settings.nodes:
            return f"{flag} is for simulated nodes, and there are none; add --nodes N"
    return ""


def _load_extensions(targets: Sequence[str]) -> list[Extension]:
    if not targets:
        return []
    from pinnace.sdk.command.operator_files import NoOperator, extension_in  # noqa: PLC0415 - it loads pydantic, which takes long

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


async def _serve(
    settings: Settings,
    kubeconfig_path: Path | None,
    extensions: Sequence[Extension],
    *,
    merge: bool,
    has_control: bool,
) -> None:
    check_memory_limits()
    check_secret_files(settings)
    signals = StopSignals()
    own_kubeconfig = settings.data_dir / "kubeconfig" if settings.data_dir is not None else None
    paths = [path for path in (own_kubeconfig, kubeconfig_path) if path is not None]
    gc.set_threshold(*COLLECT_AFTER)

    def write_kubeconfigs(access: ClusterAccess) -> None:
        gc.freeze()  # The objects of now stay: kinds, schemas, code.
        if merge:
            kubeconfig.merge(files_of(os.environ)[0], access, use=True)
        for path in paths:  # The one from --kubeconfig is last: a script that waits for it finds all else done.
            kubeconfig.write(path, access)

    async with AsyncExitStack() as stack:
        # Many simulated nodes take seconds to be registered.
        with progress("starting the cluster"), signals.ending_start():
            access = await _start(stack, settings, write_kubeconfigs, has_control=has_control)
        gc.freeze()  # So do the controllers, which are loaded last.
        seconds = time.monotonic() - STARTED
        print(f"pinnace {__version__} is ready at {access.server} ({seconds:.2f} s). Ctrl-C stops it.")
        print(first_commands(settings, paths[-1] if paths else None, is_merged=merge), flush=True)
        await _run_extensions(stack, access, extensions)
        await signals.wait()
        print("stopping: requests in flight finish, watches end", file=sys.stderr, flush=True)


async def _start(
    stack: AsyncExitStack, settings: Settings, before_ready: Callable[[ClusterAccess], None], *, has_control: bool
) -> ClusterAccess:
    """Run a cluster until the stack ends; with a control endpoint, print its address. Return how to reach it."""
    if not has_control:
        return (await stack.enter_async_context(running(settings, before_ready=before_ready))).access
    # The modules for tests load the SDK, which other clusters do not need.
    from pinnace.testing.control.endpoint import PREFIX, running_with_control  # noqa: PLC0415

    controlled = await stack.enter_async_context(running_with_control(settings, before_ready=before_ready))
    print(f"control endpoint: {controlled.url}{PREFIX}")
    return controlled.access


def control_error(settings: Settings) -> str:
    """Return why a cluster with these settings cannot have a control endpoint; empty if it can."""
    if settings.data_dir is not None or settings.etcd is not None:
        return "--control is for clusters in memory; add --ephemeral, and leave out --store"
    if not _is_loopback(settings.host):
        return f"--control listens on loopback only, not on {settings.host}; leave out --host"
    refused = {
        "--node and --agents": bool(settings.node),
        "--stages": settings.stages is not None,
        "--audit-*": settings.audit != AuditSettings(),
        "--tls-*, --client-ca-file and --service-account-signing-key-file": settings.key_files != KeyFiles(),
        "--encryption-key-file": settings.encryption_key_file is not None,
        "--encryption-provider-config": settings.encryption_configuration is not None,
    }
    given = next((flag for flag, is_given in refused.items() if is_given), "")
    return f"{given} cannot be combined with --control; leave one of them out" if given else ""


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


_SERVE = "python3 -m http.server 8080"
_POD_AND_SERVICE = (
    "{apiVersion: v1, kind: List, items: ["
    "{apiVersion: v1, kind: Pod, metadata: {name: web, labels: {run: web}}, spec: {containers: "
    "[{name: web, image: python, command: [python3, -m, http.server, '8080']}]}}, "
    "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {run: web}, ports: [{port: 8080}]}}]}"
)

_ON_A_NODE = (
    f"kubectl run web --image=python --port=8080 --expose -- {_SERVE}",
    "kubectl wait --for=condition=Ready pod/web",
    "kubectl get nodes,pods,services -o wide",
    "kubectl exec web -- hostname",
    "kubectl port-forward service/web 8080    # and open http://127.0.0.1:8080/",
)
_ON_SIMULATED_NODES = (
    "kubectl create deployment web --image=nginx --replicas=2",
    "kubectl rollout status deployment web",
    "kubectl get nodes,pods -o wide",
    "kubectl scale deployment web --replicas=5",
    "kubectl describe deployment web",
)
_WITHOUT_NODES = (
    "kubectl get namespaces",
    "kubectl create configmap greeting --from-literal=text=hello",
    "kubectl get configmap greeting -o yaml",
    "kubectl explain deployment.spec",
    "kubectl api-resources",
)
_WITHOUT_KUBECTL = (
    f'echo "{_POD_AND_SERVICE}" | pinnace apply -f -',
    "pinnace get nodes",
    "pinnace get pods -o wide",
    "pinnace describe pod web",
    "pinnace proxy svc/web 8080    # and open http://127.0.0.1:8080/",
)


def first_commands(settings: Settings, kubeconfig: Path | None, *, is_merged: bool) -> str:
    """Return the lines that show how to reach the cluster, and what to try first."""
    if kubeconfig is None and not is_merged:
        return "  no kubeconfig was written: start with --kubeconfig PATH or --merge to get one"
    lines = ["Try, in another terminal:"]
    if not is_merged:
        lines.append(f"export KUBECONFIG={shlex.quote(str(kubeconfig))}")
    return "\n  ".join([*lines, *_commands(settings)])


def _commands(settings: Settings) -> Sequence[str]:
    if shutil.which("kubectl") is None:
        own = _own_command()
        return [line.replace("pinnace ", f"{own} ") for line in _WITHOUT_KUBECTL]
    if settings.node:
        from pinnace.node.images.host import shows_host_image  # noqa: PLC0415 - only nodes have images.

        if shows_host_image(settings.has_host_image):
            return _ON_A_NODE
        return (f"{_ON_A_NODE[0]}    # pulls the image; with up --host-image it is this machine's", *_ON_A_NODE[1:])
    return _ON_SIMULATED_NODES if settings.nodes else _WITHOUT_NODES


def _own_command() -> str:
    """Return how this program is called in another terminal: by its name if the shell would find it."""
    program = Path(sys.argv[0])
    if program.name != "pinnace":
        return f"{shlex.quote(sys.executable)} -m pinnace.cli.main"
    installed = shutil.which("pinnace")
    if installed is not None and os.path.samefile(installed, program):
        return "pinnace"
    return shlex.quote(str(program.absolute()))


REPEAT_SECONDS = 1.0
"""A signal that comes sooner after the first is the same wish: systemd sends SIGTERM and SIGHUP together."""


class StartStopped(Exception):
    """A signal came before the start was over."""


class StopSignals:
    """SIGINT, SIGTERM and SIGHUP: the first of them ends a start that has not finished, or a cluster that runs.

    Signals are received from its creation on, within the running loop. A second one ends the process at once, as with
    Kubernetes' programs: every answered write is on the disk.
    """

    def __init__(self) -> None:
        self._received = asyncio.Event()
        self._received_at = 0.0
        self._starting: asyncio.Task[object] | None = None
        loop = asyncio.get_running_loop()
        for number in stop_signals():
            loop.add_signal_handler(number, self._receive)

    async def wait(self) -> None:
        """Return when a signal has been received."""
        await self._received.wait()

    @contextmanager
    def ending_start(self) -> Iterator[None]:
        """Cancel the block at a signal, and raise StartStopped."""
        self._starting = asyncio.current_task()
        try:
            yield
        except asyncio.CancelledError:
            if not self._received.is_set() or self._starting is None:
                raise
            self._starting.uncancel()
            raise StartStopped from None
        finally:
            self._starting = None

    def _receive(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._received.is_set():
            if now - self._received_at >= REPEAT_SECONDS:
                print("ending at once: this is the second signal", file=sys.stderr, flush=True)
                os._exit(1)
            return
        self._received_at = now
        if self._starting is not None:
            self._starting.cancel()
        self._received.set()
