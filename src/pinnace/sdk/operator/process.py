"""An operator as a process: connected to the current cluster, until it is told to stop."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pinnace.client.client import Client
from pinnace.client.connect import connect
from pinnace.sdk.operator.why_answers import answering

if TYPE_CHECKING:
    from pinnace.sdk.operator.operator import Operator


def serve(operator: Operator, *, kubeconfig: Path | None = None, context: str = "", **options: Any) -> None:
    """Run until SIGINT or SIGTERM; what has been begun is finished. Takes what `Operator.run` takes."""
    asyncio.run(_serve(operator, kubeconfig, context, options))


async def _serve(operator: Operator, kubeconfig: Path | None, context: str, options: dict[str, Any]) -> None:
    async with connect(kubeconfig=kubeconfig, context=context, field_manager=operator.name) as client:
        await until_told(_work(operator, client, options))


async def _work(operator: Operator, client: Client, options: dict[str, Any]) -> None:
    async with operator.running(client, **options) as manager, answering(manager):
        await asyncio.get_running_loop().create_future()


async def until_told(work: Any) -> None:
    """Do something until it is done, or the process is told to stop."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        if not task.cancelled():
            raise
