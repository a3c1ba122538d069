"""Count the code that one PATCH crosses from the socket to a watcher, and that one reconcile crosses.

    python tools/trace_write.py             # the counts
    python tools/trace_write.py --list      # and the functions, file by file

How it counts: a server on SQLite serves TLS in this process, with RBAC, admission and flow control as `pinnace up` has
them. A watcher is open. A client sends one merge patch of a ConfigMap; a profile function records each function of
`src/pinnace` that runs, in every thread, until the watcher has received the event. Each function counts once, with
all its lines (signature, docstring, comments); a function within a function counts with it. The client is written
here, with the standard library alone, so that no client code is counted. Two patches are sent before: the third finds
the caches filled, as most requests do.

Three figures come out. *The line* is what a reader follows: the stages of `WRITE`, which docs/architecture.md draws,
and every function on the call stack between them. *Its files* are all functions that run in the files of the line.
*All* is every function that runs in any file, with each helper of a helper.

For a reconcile, the trace begins when the changed object is stored and ends with the controller's own write. The code
of the client side counts, all of it; the server's side of that write was counted above.
"""

from __future__ import annotations

import ast
import asyncio
import json
import ssl
import sys
import tempfile
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

from pinnace.auth.users import MASTERS, User
from pinnace.cluster.bootstrap.creation import bootstrap
from pinnace.cluster.control_plane import ControlPlane, build
from pinnace.cluster.files.storage import open_store
from pinnace.cluster.in_process import in_process_client
from pinnace.cluster.settings import Settings
from pinnace.model.objects import Key
from pinnace.reconcile.controller import Controller, Result
from pinnace.reconcile.manager import Manager
from pinnace.testing.wire import Wire, certificates, wired

SOURCE = Path(__file__).parents[1] / "src" / "pinnace"
TOKEN = "trace"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
CLIENT_SIDE = ("client", "reconcile", "controllers", "sdk")
"""The folders that a reconcile is counted in."""


class Stage(NamedTuple):
    """A step of a write, and the name of the function or method that it begins with."""

    name: str
    file: str
    function: str


WRITE = (
    Stage("read the socket", "server/http/tls_transport.py", "_read"),
    Stage("parse HTTP", "server/http/request_parser.py", "feed"),
    Stage("hand the request over", "server/http/connection.py", "handle_request"),
    Stage("name the stages", "server/handler.py", "handle"),
    Stage("authenticate", "auth/authentication/authenticators.py", "authenticate"),
    Stage("parse the target", "server/targets.py", "parse"),
    Stage("flow control", "server/flowcontrol/flow_control.py", "turn_at_once"),
    Stage("authorize", "auth/authorization/authorizers.py", "decide"),
    Stage("deadline", "server/http/deadlines.py", "limit"),
    Stage("verb", "server/verbs.py", "run"),
    Stage("write", "server/write/pipeline.py", "write"),
    Stage("current object", "server/write/pipeline.py", "_read_current"),
    Stage("edit", "server/write/edits.py", "patched"),
    Stage("mutate", "admission/chain.py", "mutate"),
    Stage("prepare", "server/write/preparation.py", "prepare"),
    Stage("reserve", "server/write/reservations.py", "reserve"),
    Stage("validate", "server/write/validation.py", "validate"),
    Stage("admit", "admission/chain.py", "validate"),
    Stage("store", "store/sqlite/store.py", "put"),
    Stage("commit", "store/sqlite/writer.py", "_commit"),
    Stage("publish", "store/watchers.py", "publish"),
    Stage("watch cache and fan-out", "server/cache/fanout.py", "follow"),
    Stage("deliver", "server/read/watch.py", "_deliver"),
    Stage("send", "server/http/tls_transport.py", "write"),
    Stage("respond", "server/responses.py", "render_at_once"),
)
"""The stages of a PATCH in the order in which they begin. The watcher's event and the response may change places."""


@dataclass(slots=True)
class Trace:
    """The functions of src/pinnace that ran while `is_on`."""

    is_on: bool = False
    codes: set[CodeType] = field(default_factory=set)
    on_line: set[CodeType] = field(default_factory=set)
    """The functions of stages, and of the call stacks that led to them."""
    order: dict[Stage, None] = field(default_factory=dict)
    """The stages, in the order of their first call."""

    def start(self) -> None:
        self.codes.clear()
        self.on_line.clear()
        self.order.clear()
        self.is_on = True

    def stop(self) -> Traced:
        self.is_on = False
        return Traced(locate(self.codes), locate(self.on_line), list(self.order))

    def record(self, frame: FrameType, event: str, argument: object) -> None:
        if not self.is_on or event != "call" or not frame.f_code.co_filename.startswith(str(SOURCE)):
            return
        self.codes.add(frame.f_code)
        stage = _STAGES.get((frame.f_code.co_filename, frame.f_code.co_name))
        if stage is None:
            return
        self.order.setdefault(stage)
        caller: FrameType | None = frame
        while caller is not None:
            if caller.f_code.co_filename.startswith(str(SOURCE)):
                self.on_line.add(caller.f_code)
            caller = caller.f_back


_STAGES = {(str(SOURCE / stage.file), stage.function): stage for stage in WRITE}


class Traced(NamedTuple):
    """The result of a trace."""

    all: list[Function]
    line: list[Function]
    stages: list[Stage]

    @property
    def in_files_of_line(self) -> list[Function]:
        files = {function.file for function in self.line}
        return [function for function in self.all if function.file in files]


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
    found = set()
    for code in codes:
        path = Path(code.co_filename)
        for function in functions_of(path):
            if function.first <= code.co_firstlineno <= function.last:
                found.add(function)
    return sorted(found)


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


async def trace_write(plane: ControlPlane, trace: Trace) -> Traced:
    """Return the functions that one PATCH crosses until a watcher has its event."""
    async with wired(plane, TOKEN) as wire:
        writer, watcher = await Connection.open(wire), await Connection.open(wire)
        made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "traced"}, "data": {"step": "0"}}
        await writer.request("POST", CONFIG_MAPS, json.dumps(made).encode())
        await watcher.send("GET", f"{CONFIG_MAPS}?watch=true&fieldSelector=metadata.name%3Dtraced")
        await watcher.receive(b'"step":"0"')
        for step in ("1", "2", "3"):
            trace.start()
            patch = json.dumps({"data": {"step": step}}).encode()
            await writer.request("PATCH", f"{CONFIG_MAPS}/traced", patch, "application/merge-patch+json")
            await watcher.receive(f'"step":"{step}"'.encode())
            traced = trace.stop()
        writer.close()
        watcher.close()
    return traced


async def trace_reconcile(plane: ControlPlane, trace: Trace) -> list[Function]:
    """Return the functions that a change crosses until the controller's own write has been sent."""
    client = in_process_client(plane.local())
    manager = Manager(client, name="traced")
    written = asyncio.Queue[None]()
    cache = manager.cache("v1/ConfigMap")

    async def reconcile(key: Key) -> Result | None:
        found = cache.get(key)
        if found is not None and found["metadata"].get("labels", {}).get("step") != found["data"]["step"]:
            await client.patch("v1/ConfigMap", key.name, {"metadata": {"labels": {"step": found["data"]["step"]}}})
            written.put_nowait(None)
        return None

    controller = Controller("traced", reconcile)
    controller.for_("v1/ConfigMap")
    manager.add(controller)
    task = asyncio.create_task(manager.run())
    for step in ("4", "5", "6"):
        trace.start()
        await change(plane, step)
        async with asyncio.timeout(10):
            await written.get()
        traced = trace.stop()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return [function for function in traced.all if function.file.partition("/")[0] in CLIENT_SIDE]


async def change(plane: ControlPlane, step: str) -> None:
    """Change the traced object by a request without client code; the informer may see it before the answer comes."""
    headers = {"content-type": "application/merge-patch+json"}
    body = json.dumps({"data": {"step": step}}).encode()
    await plane.local().request("PATCH", f"{CONFIG_MAPS}/traced", body, headers)


async def run() -> tuple[Traced, list[Function]]:
    trace = Trace()
    threading.setprofile(trace.record)  # For the threads that the store starts.
    sys.setprofile(trace.record)
    try:
        with tempfile.TemporaryDirectory() as directory:
            store = await open_store(Path(directory) / "state.db", key_file=None)
            try:
                plane = await build(Settings(), store, tokens={TOKEN: User("admin", (MASTERS,))})
                async with plane.supervisor.running():
                    await bootstrap(plane, address="127.0.0.1", port=6443)
                    write = await trace_write(plane, trace)
                    reconcile = await trace_reconcile(plane, trace)
                await plane.close()
            finally:
                await store.close()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return write, reconcile


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
        rows.append(f"  {file}: {sum(one.lines for one in inside)}")
        rows += [f"    {one.first:4} {one.name} {one.lines}" for one in inside]
    return "\n".join(rows)


def main(arguments: list[str]) -> int:
    write, reconcile = asyncio.run(run())
    for title, functions in (
        ("a PATCH from socket to watcher, the line", write.line),
        ("a PATCH from socket to watcher, its files", write.in_files_of_line),
        ("a PATCH from socket to watcher, all", write.all),
        ("a reconcile from event to write, all", reconcile),
    ):
        print(f"{title}: {summary(functions)}")
        if "--list" in arguments:
            print(listing(functions))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
