"""The process of a node beside the server: it ends with the server, and makes no data directory."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from pinnace.node import child_process

DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"


def test_a_node_does_not_create_a_removed_data_directory_again(tmp_path: Path) -> None:
    with pytest.raises(child_process.NodeEnded, match="data was removed: node one has no place for its state"):
        child_process.make_state_directory(tmp_path / "data" / "node", "one")
    assert not (tmp_path / "data").exists()


async def test_a_process_that_does_not_stop_in_time_is_killed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(child_process, "STOP_SECONDS", 0.1)
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", DEAF, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    await process.stdout.readline()
    await child_process.stop_process(process, "deaf")
    assert process.returncode == -signal.SIGKILL
    assert "node deaf has not stopped within" in caplog.text


async def test_a_process_is_killed_though_the_task_that_stops_it_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "STOP_SECONDS", 0.1)
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", DEAF, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    await process.stdout.readline()

    async def run() -> None:
        try:
            await process.wait()
        finally:
            await child_process.stop_process(process, "deaf")

    task = asyncio.create_task(run())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert process.returncode == -signal.SIGKILL
