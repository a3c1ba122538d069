"""Modules that few extensions need are loaded with the first one that needs them, and never on the event loop."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pinnace.process import event_loop

_ROOT = Path(__file__).parents[2]
_CUSTOM_OBJECT = """
import asyncio, sys
from tests.extensions.definitions import BOATS, DEFINITIONS, NUMBER, boats, shape, version
from tests.server.in_process import MERGE, control_plane

async def run():
    async with control_plane() as cluster:
        schema = shape(size=NUMBER)
        await cluster.post(DEFINITIONS, boats(version(schema=schema)))
        print("plain", await create(cluster, "plain"), "pinnace.schema.cel.rules.rules" in sys.modules)
        schema["properties"]["spec"]["x-kubernetes-validations"] = [{"rule": "self.size > 0"}]
        definition = {"spec": {"versions": [{**version(schema=schema), "storage": True}]}}
        await cluster.patch(f"{DEFINITIONS}/boats.example.com", definition, MERGE)
        print("ruled", await create(cluster, "ruled"), "pinnace.schema.cel.rules.rules" in sys.modules)

async def create(cluster, name):
    boat = {"apiVersion": "example.com/v1", "kind": "Boat", "metadata": {"name": name}, "spec": {"size": 0}}
    return (await cluster.post(BOATS, boat)).status

asyncio.run(run())
"""


def test_custom_objects_load_cel_only_if_their_schema_has_rules() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _CUSTOM_OBJECT],
        capture_output=True,
        text=True,
        timeout=120,
        env={"PYTHONPATH": f"{_ROOT / 'src'}:{_ROOT}"},
    )
    assert ran.stdout.splitlines() == ["plain 201 False", "ruled 422 True"], ran.stderr


def test_a_late_import_leaves_the_event_loop_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module can end only if the loop runs on meanwhile."""
    (tmp_path / "slow_module.py").write_text("import slow_lock\nassert slow_lock.opened.wait(60)\nis_complete = True\n")
    (tmp_path / "slow_lock.py").write_text("import threading\nopened = threading.Event()\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    async def load() -> None:
        import slow_lock  # type: ignore[import-not-found]  # noqa: PLC0415 - made above.

        opened: threading.Event = slow_lock.opened
        async with asyncio.TaskGroup() as group:
            group.create_task(event_loop.import_beside_loop("slow_module"))
            while "slow_module" not in sys.modules:
                await asyncio.sleep(0)
            opened.set()
        await event_loop.import_beside_loop("slow_module")

    try:
        asyncio.run(load())
        assert sys.modules["slow_module"].is_complete
    finally:
        for name in ("slow_module", "slow_lock"):
            sys.modules.pop(name, None)
