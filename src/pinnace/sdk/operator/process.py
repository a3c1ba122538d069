"""An operator as a process: connected to the current cluster, until SIGINT or SIGTERM."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from pinnace.client.client import Client
from pinnace.client.connect import connect
from pinnace.process.event_loop import stop_signals
from pinnace.process.tasks import Interrupted, StopRequested
from pinnace.sdk.extension import Extension
from pinnace.sdk.operator.why_answers import answer_why

_SIGNALLED = 128
_STOPPING = b"stopping: calls that have begun finish; Ctrl-C again interrupts them\n"


def serve(operator: Extension, *, kubeconfig: Path | None = None, context: str = "", **options: Any) -> None:
    """Run until SIGINT or SIGTERM, then finish the calls that have begun. Takes the options of `Operator.run`."""

    async def work(client: Client) -> None:
        async with operator.running(client, **options) as manager, answer_why(manager):
            await asyncio.get_running_loop().create_future()

    async def run() -> None:
        async with connect(kubeconfig=kubeconfig, context=context, field_manager=operator.name) as client:
            await run_until_signal(work(client))

    asyncio.run(run())


async def run_until_signal(work: Any) -> None:
    """Await `work` until it is done. A signal to stop cancels it.

    Raise Interrupted if the work ends as cancelled without a signal. The second signal raises StopRequested, a
    KeyboardInterrupt, wherever the process is, and the third ends the process: handlers that never return cannot keep
    it alive.
    """
    task = asyncio.ensure_future(work)
    signals = _SignalCount(asyncio.get_running_loop(), task)
    for number in stop_signals():
        signal.signal(number, signals.receive)
    try:
        await task
    except asyncio.CancelledError as error:
        if not task.cancelled():
            raise
        if not signals.is_received:
            raise Interrupted("the work of this process was cancelled, although no signal has stopped it") from error


class _SignalCount:
    """The signals to stop that the process has received.

    They are received by `signal.signal`, not by the loop: a handler that blocks the loop must be interruptible.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, task: asyncio.Future[Any]) -> None:
        self._loop = loop
        self._task = task
        self._count = 0

    @property
    def is_received(self) -> bool:
        return self._count > 0

    def receive(self, number: int, _frame: FrameType | None) -> None:
        self._count += 1
        if self._count > 2:
            os._exit(_SIGNALLED + number)
        if self._count == 2:
            raise StopRequested
        if number == signal.SIGINT:
            os.write(sys.stderr.fileno(), _STOPPING)
        self._loop.call_soon_threadsafe(self._task.cancel)
