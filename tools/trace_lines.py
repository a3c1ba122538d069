"""Count the code of the three lines: of a write, of a reconcile and of a pod, as docs/architecture.md draws them.

    python tools/trace_lines.py                    # the counts
    python tools/trace_lines.py pod                # those of one line: write, reconcile or pod
    python tools/trace_lines.py pod --list         # and the functions, file by file

How it counts: a server on SQLite serves TLS in this process, with RBAC, admission and flow control as `pinnace up` has
them. A profile function records each function of `src/pinnace` that runs, in every thread. Each function counts once,
with all its lines (signature, docstring, comments); a function within a function counts with it. Each line runs several
times: the later times find the caches filled, as most do. The shortest of these counts, since on a busy machine reads
are split and other parts wake up.

- **A write** is a merge patch of a ConfigMap, until a watcher has received the event. The client is written here, with
  the standard library alone, so that no client code is counted.
- **A reconcile** begins when a changed object is stored, and ends with the controller's own write. The code of the
  client side counts; the server's side of that write was counted above.
- **A pod** begins with its creation and ends when its status says that it is ready: the scheduler binds it, and a node
  agent starts it in a runtime in memory, so that no namespaces are needed. The code of the scheduler, the node and
  the client side counts, without that runtime.

Two figures come out of each. *The line* is what a reader follows: its stages, and every function on the call stack
between them. *All* is every function that runs, with each helper of a helper.
"""

from __future__ import annotations

import ast
import asyncio
import json
import ssl
import sys
import tempfile
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

from pinnace.cluster.control_plane import ControlPlane, build
from pinnace.cluster.in_process import in_process_client
from pinnace.cluster.server_jobs import add_scheduler
from pinnace.cluster.settings import Settings
from pinnace.model.objects import Key, Object
from pinnace.model.users import MASTERS, User
from pinnace.node.agent.agent import NodeAgent
from pinnace.node.agent.settings import AgentSettings
from pinnace.node.runtime.in_memory import InMemoryImages, InMemoryRuntime
from pinnace.reconcile.controller import Controller, Result
from pinnace.reconcile.manager import Manager
from pinnace.server.bootstrap.creation import bootstrap
from pinnace.store.opening import open_store
from pinnace.store.store import Change
from pinnace.testing.wire import Wire, certificates, wired

SOURCE = Path(__file__).parents[1] / "src" / "pinnace"
TOKEN = "trace"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
NODE = "traced"


class Stage(NamedTuple):
    """A step of a line, and the name of the function or method that it begins with."""

    name: str
    file: str
    function: str


class Line(NamedTuple):
    """The stages in the order in which they begin, and the folders and files that count; none for all."""

    stages: tuple[Stage, ...]
    counted: tuple[str, ...] = ("",)
    left_out: tuple[str, ...] = ()

    def counts(self, file: str) -> bool:
        return file.startswith(self.counted) and file not in self.left_out


WRITE = (
    Stage("read the socket", "server/http/tls_transport.py", "_read"),
    Stage("parse HTTP", "server/http/request_parser.py", "feed"),
    Stage("hand the request over", "server/http/connection.py", "handle_request"),
    Stage("parse the target", "server/targets.py", "parse"),
    Stage("name the stages", "server/handler.py", "_run_stages"),
    Stage("authenticate", "auth/authentication/authenticators.py", "authenticate"),
    Stage("flow control", "server/flowcontrol/flow_control.py", "turn_at_once"),
    Stage("authorize", "auth/authorization/authorizers.py", "decide"),
    Stage("deadline", "serving/deadlines.py", "limit"),
    Stage("verb", "serving/verbs.py", "run"),
    Stage("write", "serving/write/pipeline.py", "write"),
    Stage("current object", "serving/write/pipeline.py", "_read_current"),
    Stage("edit", "serving/write/edits.py", "patched"),
    Stage("mutate", "admission/chain.py", "mutate"),
    Stage("prepare", "serving/write/preparation.py", "prepare"),
    Stage("reserve", "server/write/reservations.py", "reserve"),
    Stage("validate", "serving/write/pipeline.py", "validate"),
    Stage("admit", "admission/chain.py", "validate"),
    Stage("store", "store/sqlite/store.py", "put"),
    Stage("commit", "store/sqlite/writer.py", "_commit"),
    Stage("publish", "store/view.py", "publish"),
    Stage("watch cache and fan-out", "serving/cache/fanout.py", "follow"),
    Stage("deliver", "serving/read/watch.py", "_deliver"),
    Stage("send", "server/http/tls_transport.py", "write"),
    Stage("respond", "serving/responses.py", "render_at_once"),
)
"""The watcher's event and the response may change places."""
RECONCILE = (
    Stage("follow", "client/following.py", "list_and_watch"),
    Stage("informer", "reconcile/informer.py", "_receive"),
    Stage("cache", "reconcile/cache.py", "put"),
    Stage("queue", "reconcile/queue.py", "add"),
    Stage("worker", "reconcile/controller.py", "_reconcile_once"),
    Stage("client write", "client/writing.py", "patch"),
)
POD = (
    Stage("created", "serving/write/pipeline.py", "write"),
    Stage("scheduler's queue", "scheduler/queue.py", "add"),
    Stage("scheduled", "scheduler/decision.py", "decide"),
    Stage("bound", "scheduler/binding.py", "begin"),
    Stage("seen by the node", "node/agent/agent.py", "_sync"),
    Stage("steps that are due", "node/agent/pods/pod_workers.py", "sync"),
    Stage("admitted by the node", "node/resources/admission.py", "check_pod"),
    Stage("volumes", "node/agent/volumes/volumes.py", "set_up_volumes"),
    Stage("sandbox", "node/agent/containers/container_configs.py", "sandbox_of"),
    Stage("container", "node/agent/containers/container_starts.py", "start"),
    Stage("image", "node/images/pulls.py", "get"),
    Stage("environment", "node/agent/containers/variables.py", "environment_of"),
    Stage("configuration", "node/agent/containers/container_configs.py", "container_of"),
    Stage("start", "node/runtime/in_memory.py", "start_container"),
    Stage("probes", "node/agent/probes/probes.py", "__init__"),
    Stage("status", "node/agent/status/status_writes.py", "write"),
    Stage("outcome of a probe", "node/agent/probes/probes.py", "_apply"),
)
LINES = {
    "write": Line(WRITE),
    "reconcile": Line(RECONCILE, ("client/", "reconcile/", "controllers/", "sdk/")),
    "pod": Line(POD, ("client/", "reconcile/", "scheduler/", "node/"), ("node/runtime/in_memory.py",)),
}


@dataclass(slots=True)
class Trace:
    """The functions of src/pinnace that ran while `is_on`."""

    line: Line = LINES["write"]
    is_on: bool = False
    codes: set[CodeType] = field(default_factory=set)
    on_line: set[CodeType] = field(default_factory=set)
    """The functions of stages, and of the call stacks that led to them."""
    order: dict[Stage, None] = field(default_factory=dict)
    """The stages, in the order of their first call."""
    _stages: dict[tuple[str, str], Stage] = field(default_factory=dict)

    def start(self, name: str) -> None:
        """Record the line with this name from now on."""
        self.line = LINES[name]
        self._stages = {(str(SOURCE / stage.file), stage.function): stage for stage in self.line.stages}
        self.codes.clear()
        self.on_line.clear()
        self.order.clear()
        self.is_on = True

    def stop(self) -> Traced:
        self.is_on = False
        return Traced(self._locate(self.codes), self._locate(self.on_line), list(self.order))

    def _locate(self, codes: Iterable[CodeType]) -> list[Function]:
        return [function for function in locate(codes) if self.line.counts(function.file)]

    def record(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if not self.is_on or event != "call" or not code.co_filename.startswith(str(SOURCE)) or _is_of_timer(frame):
            return
        self.codes.add(code)
        stage = self._stages.get((code.co_filename, code.co_name))
        if stage is None:
            return
        self.order.setdefault(stage)
        caller: FrameType | None = frame
        while caller is not None:
            if caller.f_code.co_filename.startswith(str(SOURCE)):
                self.on_line.add(caller.f_code)
            caller = caller.f_back


def _is_of_timer(frame: FrameType) -> bool:
    """Whether this is the timer of connections, or what it calls: it runs every second, also without a request."""
    caller = frame.f_back
    return _TIMER in (frame.f_code.co_name, caller.f_code.co_name if caller is not None else "")


_TIMER = "_watch_limits"


class Traced(NamedTuple):
    """The result of a trace."""

    all: list[Function]
    line: list[Function]
    stages: list[Stage]


@dataclass(frozen=True, slots=True, order=True)
class Function:
    """A function or method at the top of a module or class, with the lines that it takes."""

    file: str
    first: int
    last: int
    name: str

    @property
    def lines(self) -> int:
        return self.last - self.first + 1


def locate(codes: Iterable[CodeType]) -> list[Function]:
    """Return the outermost functions that the code objects belong to, in the order of files and lines."""
    functions = set()
    for code in codes:
        path = Path(code.co_filename)
        for function in functions_of(path):
            if function.first <= code.co_firstlineno <= function.last:
                functions.add(function)
    return sorted(functions)


@cache
def functions_of(path: Path) -> tuple[Function, ...]:
    name = str(path.relative_to(SOURCE))
    return tuple(_outermost(name, ast.parse(path.read_text())))


def _outermost(file: str, scope: ast.Module | ast.ClassDef) -> Iterable[Function]:
    for node in scope.body:
        if isinstance(node, ast.ClassDef):
            yield from _outermost(file, node)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            yield Function(file, first, node.end_lineno or node.lineno, node.name)


class Connection:
    """One HTTPS connection of the standard library."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, wire: Wire) -> Connection:
        port = int(wire.access.server.rpartition(":")[2])
        context = ssl.create_default_context(cafile=str(certificates().ca.certificate))
        return cls(*await asyncio.open_connection("127.0.0.1", port, ssl=context))

    async def send(self, method: str, target: str, body: bytes = b"", content_type: str = "application/json") -> None:
        head = (
            f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
            f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        await self._writer.drain()

    async def receive(self, end: bytes) -> bytes:
        return await self._reader.readuntil(end)

    async def request(self, method: str, target: str, body: bytes, content_type: str = "application/json") -> None:
        await self.send(method, target, body, content_type)
        head = (await self.receive(b"\r\n\r\n")).lower()
        if not head.startswith(b"http/1.1 2"):
            raise RuntimeError(f"{method} {target} was answered with {head.splitlines()[0].decode()}; expected 2xx")
        await self._reader.readexactly(int(head.partition(b"content-length:")[2].split(b"\r\n")[0]))

    def close(self) -> None:
        self._writer.close()


def shortest(traces: Sequence[Traced]) -> Traced:
    return min(traces, key=lambda traced: count_lines(traced.all))


async def trace_write(plane: ControlPlane, trace: Trace) -> Traced:
    """Return the functions that one PATCH crosses until a watcher has its event."""
    async with wired(plane, TOKEN) as wire:
        writer, watcher = await Connection.open(wire), await Connection.open(wire)
        made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "traced"}, "data": {"step": "0"}}
        await writer.request("POST", CONFIG_MAPS, json.dumps(made).encode())
        await watcher.send("GET", f"{CONFIG_MAPS}?watch=true&fieldSelector=metadata.name%3Dtraced")
        await watcher.receive(b'"step":"0"')
        traces = []
        for step in ("1", "2", "3", "4", "5"):
            trace.start("write")
            patch = json.dumps({"data": {"step": step}}).encode()
            await writer.request("PATCH", f"{CONFIG_MAPS}/traced", patch, "application/merge-patch+json")
            await watcher.receive(f'"step":"{step}"'.encode())
            traces.append(trace.stop())
        writer.close()
        watcher.close()
    return shortest(traces[2:])


async def trace_reconcile(plane: ControlPlane, trace: Trace) -> Traced:
    """Return the functions that a change crosses until the controller's own write has been sent."""
    client = in_process_client(plane.local())
    manager = Manager(client, name="traced")
    written = asyncio.Queue[None]()
    cache = manager.cache("v1/ConfigMap")

    async def reconcile(key: Key) -> Result | None:
        config_map = cache.get(key)
        if config_map is None:
            return None
        step = config_map["data"]["step"]
        if config_map["metadata"].get("labels", {}).get("step") != step:
            await client.patch("v1/ConfigMap", key.name, {"metadata": {"labels": {"step": step}}})
            written.put_nowait(None)
        return None

    controller = Controller("traced", reconcile)
    controller.for_("v1/ConfigMap")
    manager.add(controller)
    task = asyncio.create_task(manager.run())
    traces = []
    for step in ("6", "7", "8"):
        await manager.settle()
        while not written.empty():  # The write of the start, before any change.
            written.get_nowait()
        trace.start("reconcile")
        await change(plane, step)
        async with asyncio.timeout(10):
            await written.get()
        traces.append(trace.stop())
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return shortest(traces[1:])


async def trace_pod(plane: ControlPlane, trace: Trace, directory: Path) -> Traced:
    """Return the functions that a pod crosses from its creation until its status says that it is ready."""
    client = in_process_client(plane.local())
    await client.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}})
    authority = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kube-root-ca.crt"}}
    await client.create({**authority, "data": {"ca.crt": "traced"}})
    scheduling, node = Manager(client, name="scheduler"), Manager(client, name="kubelet")
    add_scheduler(plane, scheduling)
    agent = NodeAgent(
        AgentSettings(name=NODE, directory=directory),
        node,
        InMemoryRuntime(directory, client.clock),
        InMemoryImages("web"),
    )
    node.add(agent.controller)
    ready = asyncio.Queue[str]()

    def note(changes: Sequence[Change]) -> None:
        for change in changes:
            if change.value and (obj := json.loads(change.value)).get("kind") in ("Pod", "Node") and is_ready(obj):
                ready.put_nowait(obj["metadata"]["name"])

    plane.store.follow(note)
    traces = []
    async with asyncio.timeout(60), scheduling.running(), node.running(), agent.running():
        while await ready.get() != NODE:
            pass
        for name in ("one", "two", "three"):
            await scheduling.settle()
            await node.settle()
            trace.start("pod")
            await plane.local().request("POST", PODS, pod_of(name), {"content-type": "application/json"})
            while await ready.get() != name:
                pass
            traces.append(trace.stop())
    return shortest(traces[1:])


def pod_of(name: str) -> bytes:
    """Return a pod with a volume of its own, a variable and a probe, beside the token that every pod has."""
    container = {
        "name": "main",
        "image": "web",
        "imagePullPolicy": "IfNotPresent",
        "env": [{"name": "ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        "volumeMounts": [{"name": "work", "mountPath": "/work"}],
        "readinessProbe": {"exec": {"command": ["true"]}},
    }
    spec = {
        "containers": [container],
        "volumes": [{"name": "work", "emptyDir": {}}],
        "tolerations": [{"operator": "Exists"}],
    }
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}).encode()


def is_ready(obj: Object) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


async def change(plane: ControlPlane, step: str) -> None:
    """Change the traced object by a request without client code; the informer may see it before the answer comes."""
    headers = {"content-type": "application/merge-patch+json"}
    body = json.dumps({"data": {"step": step}}).encode()
    await plane.local().request("PATCH", f"{CONFIG_MAPS}/traced", body, headers)


async def run() -> dict[str, Traced]:
    """Return the trace of each line by its name."""
    trace = Trace()
    threading.setprofile(trace.record)  # For the threads that the store starts.
    sys.setprofile(trace.record)
    try:
        with tempfile.TemporaryDirectory() as directory:
            store = await open_store(Path(directory) / "state.db")
            try:
                plane = await build(Settings(), store, tokens={TOKEN: User("admin", (MASTERS,))})
                async with plane.supervisor.running():
                    await bootstrap(plane.foundation, plane.local(), ("127.0.0.1", 6443))
                    traces = {
                        "write": await trace_write(plane, trace),
                        "reconcile": await trace_reconcile(plane, trace),
                        "pod": await trace_pod(plane, trace, Path(directory)),
                    }
                await plane.close()
            finally:
                await store.close()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return traces


def count_files(functions: list[Function]) -> int:
    return len({function.file for function in functions})


def count_lines(functions: list[Function]) -> int:
    return sum(function.lines for function in functions)


def summary(functions: list[Function]) -> str:
    return f"{count_files(functions)} files, {len(functions)} functions, {count_lines(functions):,} lines"


def listing(functions: list[Function]) -> str:
    rows = []
    for file in dict.fromkeys(function.file for function in functions):
        inside = [function for function in functions if function.file == file]
        rows.append(f"  {file}: {sum(function.lines for function in inside)}")
        rows += [f"    {function.first:4} {function.name} {function.lines}" for function in inside]
    return "\n".join(rows)


def main(arguments: list[str]) -> int:
    chosen = [argument for argument in arguments if argument != "--list"] or list(LINES)
    if unknown := set(chosen) - LINES.keys():
        print(f"there is no line {', '.join(sorted(unknown))}: expected {', '.join(LINES)}", file=sys.stderr)
        return 2
    traces = asyncio.run(run())
    for name in chosen:
        print(f"{name}: {' → '.join(stage.name for stage in traces[name].stages)}")
        for title, functions in (("the line", traces[name].line), ("all", traces[name].all)):
            print(f"{name}, {title}: {summary(functions)}")
            if "--list" in arguments:
                print(listing(functions))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
