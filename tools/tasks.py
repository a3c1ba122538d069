"""Check in src/ that nothing ends unseen: every task has an owner, and no one swallows CancelledError.

    python tools/tasks.py [FOLDER ...]      # src/pinnace without arguments

A task belongs to a TaskGroup, to `pinnace.process.tasks.Tasks`, or to a Supervisor. `group.create_task` is always
accepted; `asyncio.create_task`, `asyncio.ensure_future` and `loop.create_task` are not.

An `except` of CancelledError, BaseException or another exception that ends a process has a `raise` in it. `suppress` of
one of these, and `gather(return_exceptions=True)`, which hides them among its results, need a line in SWALLOWED.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path("src/pinnace")
ALLOWED = {
    "process/tasks.py::Tasks.start": "the owner itself",
    "process/tasks.py::contain": "awaited in the same function, which raises its error",
    "process/supervisor.py::Supervisor._start": "the owner itself: `running` cancels and awaits the parts",
    "server/http/connection.py::Connection._answer": "a hot path; the server cancels and awaits its tasks in `stop`",
    "server/http/connection.py::_run_until": "awaited in the same function, which raises its error",
    "cli/extensions/run.py::_Working.until_saved": "awaited in the same function, which prints or raises the errors",
    "sdk/operator/process.py::run_until_signal": "awaited in the same function, which raises its error",
    "store/sqlite/store.py::SqliteStore.close": "every call of `close` awaits it; it must end even if one is cancelled",
    "store/etcd/store.py::EtcdStore.open": "`close` cancels and awaits it",
    "store/etcd/history.py::read_range.ask": "`read_range` awaits it, or cancels it at its end",
    "testing/cluster.py::Cluster.keep": "the cluster awaits it in `stop`; a fixture may end in another task",
    "reconcile/worker_pool.py::WorkerPool._start": "`finish` awaits it; a TaskGroup would cancel begun reconciles",
}
"""`path::function` within src/pinnace, and the owner of its tasks."""
SWALLOWED = {
    "admission/webhooks/dispatch.py::ValidatingWebhooks._validate": "raises whatever a webhook's call has raised",
    "cli/extensions/record.py::record.talk": "a signal cancels it, and the command goes on to its last line",
    "cli/session.py::converse": "the process ends with 130",
    "server/bootstrap/default_roles.py::ensure_default_roles": "raises everything but conflicts",
    "controllers/workloads/pod_control.py::first_failure": "raises everything that is no failure of a request",
    "process/eager_coroutines.py::EagerCoroutine.advance": "throws it into the coroutine",
    "process/eager_coroutines.py::_go_on": "throws it into the coroutine",
    "node/runtime/embedded/start/container_process.py::_guard": "reports it, and ends the process",
    "node/runtime/embedded/start/container_process.py::run_in_child": "reports it, and ends the process",
    "node/runtime/embedded/supervision/fork_server.py::ForkServer._fork_meter": "prints it, and ends the process",
    "node/runtime/embedded/supervision/fork_server.py::ForkServer._fork_supervisor": "prints it, and ends the process",
    "node/runtime/embedded/start/pause.py::pause": "reports it, and ends the process",
    "process/supervisor.py::Supervisor.running": "the parts were cancelled there, and log their own failures",
    "reconcile/shards.py::Shards._finish": "runs while a cancellation goes on, which `_hold` raises afterwards",
    "reconcile/worker_pool.py::WorkerPool.finish": "the workers were cancelled there; it raises the error of one",
    "sdk/handlers/threads.py::HandlerThreads._work": "gives it to the caller in the event loop",
    "sdk/kubectl/plugins.py::Plugin.__call__": "the process ends",
    "sdk/operator/controllers.py::_Assembly._index_function.find_values": "logs and counts it",
    "sdk/operator/controllers.py::_Assembly._mapper.find_keys": "logs and counts it",
    "sdk/operator/controllers.py::_Assembly._tolerant.is_wanted": "logs and counts it",
    "server/streaming/port_forward.py::_ChannelForwarding.run": "each forwarding logs its own failure",
}
"""`path::function`, and what becomes of the exceptions that it catches."""
_ENDS = frozenset(
    ("CancelledError", "BaseException", "BaseExceptionGroup", "KeyboardInterrupt", "SystemExit", "GeneratorExit")
)


def main(folders: list[str]) -> int:
    roots = [Path(folder) for folder in folders] or [SOURCE]
    used, swallowing, findings = set(), set(), []
    for path in sorted(path for root in roots for path in root.rglob("*.py")):
        tree, name = ast.parse(path.read_text()), path.relative_to(SOURCE)
        for line, function in _created_tasks(tree):
            used.add(f"{name}::{function}")
            if f"{name}::{function}" not in ALLOWED:
                findings.append(
                    f"{path}:{line}: {function} creates a task without an owner: use a TaskGroup or process.tasks.Tasks"
                )
        for line, function in _swallowed(tree):
            swallowing.add(f"{name}::{function}")
            if f"{name}::{function}" not in SWALLOWED:
                findings.append(f"{path}:{line}: {function} swallows CancelledError or the like: raise it again")
    if not folders:
        findings += [
            f"tools/tasks.py: {place} creates no task: remove it from ALLOWED" for place in ALLOWED.keys() - used
        ]
        findings += [
            f"tools/tasks.py: {place} swallows nothing: remove it from SWALLOWED"
            for place in SWALLOWED.keys() - swallowing
        ]
    print("\n".join(findings), end="\n" if findings else "")
    return 1 if findings else 0


def _created_tasks(node: ast.AST, inside: tuple[str, ...] = ()) -> Iterator[tuple[int, str]]:
    """Yield the line and the function of each task that is created outside a TaskGroup."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        inside = (*inside, node.name)
    if isinstance(node, ast.Call) and _creates_task(node.func):
        yield node.lineno, ".".join(inside)
    for child in ast.iter_child_nodes(node):
        yield from _created_tasks(child, inside)


def _swallowed(node: ast.AST, inside: tuple[str, ...] = ()) -> Iterator[tuple[int, str]]:
    """Yield the line and the function of each place that may hide the end of a task or of the process."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        inside = (*inside, node.name)
    if (isinstance(node, ast.ExceptHandler) and _is_silent(node)) or (isinstance(node, ast.Call) and _hides(node)):
        yield node.lineno, ".".join(inside)
    for child in ast.iter_child_nodes(node):
        yield from _swallowed(child, inside)


def _is_silent(handler: ast.ExceptHandler) -> bool:
    """Whether a handler catches an exception that ends a task, has no `raise`, and does not log it."""
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    is_end = any(expected is None or _last_name(expected) in _ENDS for expected in types)
    statements = list(ast.walk(handler))
    is_logged = any(isinstance(statement, ast.Attribute) and statement.attr == "exception" for statement in statements)
    return is_end and not is_logged and not any(isinstance(statement, ast.Raise) for statement in statements)


def _hides(call: ast.Call) -> bool:
    match _last_name(call.func):
        case "suppress":
            return any(_last_name(argument) in _ENDS for argument in call.args)
        case "gather":
            return any(keyword.arg == "return_exceptions" for keyword in call.keywords)
    return False


def _last_name(node: ast.expr) -> str:
    return ast.unparse(node).rpartition(".")[2]


def _creates_task(callee: ast.expr) -> bool:
    if isinstance(callee, ast.Name):
        return callee.id in ("create_task", "ensure_future")
    if not isinstance(callee, ast.Attribute):
        return False
    owner = ast.unparse(callee.value)
    return callee.attr == "ensure_future" or (callee.attr == "create_task" and (owner == "asyncio" or "loop" in owner))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
