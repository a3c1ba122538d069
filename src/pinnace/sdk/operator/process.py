"""An operator as a process: connected to the current cluster, until SIGINT or SIGTERM."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

from pinnace.client.client import Client
from pinnace.client.connect import connect
from pinnace.sdk.extension import Extension
from pinnace.sdk.operator.why_answers import answer_why


def serve(operator: Extension, *, kubeconfig: Path | None = None, context: str = "", **options: Any) -> None:
    """Run until SIGINT or SIGTERM, then finish the calls that have begun. Takes the options of `Operator.run`."""
    asyncio.run(_serve(operator, kubeconfig, context, options))


async def _serve(operator: Extension, kubeconfig: Path | None, context: str, options: dict[str, Any]) -> None:
    async with connect(kubeconfig=kubeconfig, context=context, field_manager=operator.name) as client:
        await run_until_signal(_work(operator, client, options))


async def _work(operator: Extension, client: Client, options: dict[str, Any]) -> None:
    async with operator.running(client, **options) as manager, answer_why(manager):
        await asyncio.get_running_loop().create_future()


async def run_until_signal(work: Any) -> None:
    """Await `work` until it is done; SIGINT and SIGTERM cancel it."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        if not task.cancelled():
            raise
