"""Answer `pinnace why`: why a running operator reconciled an object, over a socket that only its user can open.

`pinnace why` finds the socket on the same machine; within a pod it runs through `kubectl exec`. Nothing listens on
the network, since names and errors of objects may be confidential.
"""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import orjson

from pinnace.model import errors
from pinnace.model.objects import Key, Object
from pinnace.reconcile.controller import Controller
from pinnace.reconcile.history import Reason, Run
from pinnace.reconcile.manager import Manager

_RUNS = 100
_LONGEST_QUESTION = 64 * 1024
_OPEN_FILES = Path("/proc/self/fd")
_log = logging.getLogger(__name__)


def socket_directory() -> Path:
    """Return the directory of the sockets of this user's operators."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    return Path(base) / "pinnace" if base else Path(tempfile.gettempdir()) / f"pinnace-{os.getuid()}"


@asynccontextmanager
async def answer_why(manager: Manager, *, server: str = "") -> AsyncIterator[Path | None]:
    """Answer within a block; yield the socket. `server` names the cluster in the answers."""
    path = _socket_path(manager.name)
    if path is None or not hasattr(asyncio, "start_unix_server"):
        yield None
        return

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, ValueError, orjson.JSONDecodeError):
            question = orjson.loads(await reader.readline())
            writer.write(orjson.dumps(await _answer(manager, server, question)) + b"\n")
            await writer.drain()
        writer.close()

    with short_name(path) as name:
        try:
            listening = await asyncio.start_unix_server(answer, name, limit=_LONGEST_QUESTION)
        except OSError as error:
            _log.warning("pinnace why cannot ask this operator: no socket can be made at %s (%s)", path, error)
            yield None
            return
        try:
            yield path
        finally:
            listening.close()
            path.unlink(missing_ok=True)


@contextmanager
def short_name(path: Path) -> Iterator[str]:
    """Yield a short path to a socket, valid within the block: the system limits it to about 100 bytes."""
    if not _OPEN_FILES.is_dir():
        yield str(path)
        return
    place = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield str(_OPEN_FILES / str(place) / path.name)
    finally:
        os.close(place)


def _socket_path(name: str) -> Path | None:
    """Return a path in a directory that only this user can open; None if there is no such directory."""
    place = socket_directory()
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        attributes = place.stat()
    except OSError:
        return None
    if attributes.st_uid != os.getuid() or attributes.st_mode & 0o077:
        return None
    path = place / f"{name[:40]}-{os.getpid()}.sock"
    path.unlink(missing_ok=True)
    return path


async def _answer(manager: Manager, server: str, question: Object) -> Object:
    """Return the history of one object, or, if the question names none, of the objects that were reconciled last."""
    key = Key(question["namespace"], question["name"]) if question.get("name") else None
    histories = [await _history(manager, controller, key) for controller in manager.controllers]
    return {
        "operator": manager.name,
        "process": os.getpid(),
        "server": server,
        "standby": not manager.is_active,
        "leader": manager.lease_holder,
        "controllers": histories,
    }


async def _history(manager: Manager, controller: Controller, key: Key | None) -> Object:
    words: list[str] = []
    group, is_namespaced = "", True
    if controller.kind is not None:
        words, group = [controller.kind.name.lower()], controller.kind.group
        with suppress(errors.ApiError):
            served = await manager.client.kinds.find(controller.kind)
            words += [served.plural, served.singular, *served.short_names]
            is_namespaced = served.namespaced
    if key is not None and not is_namespaced:
        key = Key("", key.name)
    return {
        "controller": controller.name,
        "kind": controller.kind.name if controller.kind is not None else "",
        "group": group,
        "words": words,
        "waiting": controller.queue.depth,
        "next": controller.queue.due_in(key) if key is not None else 0.0,
        "failures": controller.queue.failures(key) if key is not None else 0,
        "runs": [_run(run) for run in _runs(controller, key)],
    }


def _runs(controller: Controller, key: Key | None) -> Iterator[Run]:
    runs = controller.latest() if key is None else iter(controller.why(key))
    for _, run in zip(range(_RUNS), runs, strict=False):
        yield run


def _run(run: Run) -> Object:
    return {
        "namespace": run.key.namespace,
        "name": run.key.name,
        "began": run.began.isoformat(),
        "waited": run.waited,
        "seconds": run.seconds,
        "outcome": run.outcome,
        "error": run.error,
        "again": run.again,
        "reasons": [_reason(reason) for reason in run.reasons],
    }


def _reason(reason: Reason) -> Object:
    return {
        "what": reason.what,
        "kind": reason.kind.name if reason.kind is not None else "",
        "object": str(reason.key) if reason.key is not None else "",
        "version": reason.version,
        "fields": reason.change.fields if reason.change is not None else [],
        "managers": reason.change.managers if reason.change is not None else [],
    }
