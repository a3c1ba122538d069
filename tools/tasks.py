"""Check in src/ that every task has an owner: refuse `create_task` and `ensure_future` outside an allow list.

    python tools/tasks.py [FOLDER ...]      # src/pinnace without arguments

A task belongs to a TaskGroup, to `pinnace.model.tasks.Tasks`, or to the cluster's Supervisor. `group.create_task` is
always accepted; `asyncio.create_task`, `asyncio.ensure_future` and `loop.create_task` are not.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path("src/pinnace")
ALLOWED = {
    "model/tasks.py::Tasks.start": "the owner itself",
    "cluster/health/supervisor.py::Supervisor._start": "the owner itself: `running` cancels and awaits the parts",
    "server/http/connection.py::ServerContext.spawn": "a hot path; the server cancels and awaits its tasks in `stop`",
    "server/http/connection.py::_run_until": "awaited in the same function, which raises its error",
    "cli/commands/run.py::_Working.until_saved": "awaited in the same function, which prints or raises the errors",
    "sdk/operator/process.py::run_until_signal": "awaited in the same function, which raises its error",
    "store/sqlite/store.py::SqliteStore.close": "every call of `close` awaits it; it must end even if one is cancelled",
    "store/etcd/store.py::EtcdStore.open": "`close` cancels and awaits it",
    "store/etcd/history.py::read_range.ask": "`read_range` awaits it, or cancels it at its end",
    "testing/cluster.py::Cluster.keep": "the cluster awaits it in `stop`; a fixture may end in another task",
    "reconcile/controller.py::Controller.run": "awaited in `_finish`; a TaskGroup would cancel begun reconciles",
}
"""`path::function` within src/pinnace, and who owns its tasks."""


def main(folders: list[str]) -> int:
    roots = [Path(folder) for folder in folders] or [SOURCE]
    used, findings = set(), []
    for path in sorted(path for root in roots for path in root.rglob("*.py")):
        for line, function in _created_tasks(ast.parse(path.read_text())):
            place = f"{path.relative_to(SOURCE)}::{function}"
            used.add(place)
            if place not in ALLOWED:
                findings.append(
                    f"{path}:{line}: {function} creates a task without an owner: use a TaskGroup or model.tasks.Tasks"
                )
    if not folders:
        findings += [
            f"tools/tasks.py: {place} creates no task: remove it from ALLOWED" for place in ALLOWED.keys() - used
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


def _creates_task(called: ast.expr) -> bool:
    if isinstance(called, ast.Name):
        return called.id in ("create_task", "ensure_future")
    if not isinstance(called, ast.Attribute):
        return False
    owner = ast.unparse(called.value)
    return called.attr == "ensure_future" or (called.attr == "create_task" and (owner == "asyncio" or "loop" in owner))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
