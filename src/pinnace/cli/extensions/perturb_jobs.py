"""Search a scenario in this process or in several at once, and print how far the search is."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import queue
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from typing import Any, Protocol

from pinnace.testing.perturb.scenario import Scenario, ScenarioFailed, SearchResult
from pinnace.testing.perturb.schedule import DisturbanceKind
from pinnace.testing.perturb.search import SearchProgress, Share, search

_POLL_SECONDS = 0.5
_SECONDS_BETWEEN_LINES = 10.0
"""The time between two lines about the progress where standard error is no terminal, such as in CI."""


class ScenarioSource(Protocol):
    """Makes a scenario in any process, since scenarios cannot be sent to another one."""

    def load(self) -> Sequence[Scenario]: ...


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """The disturbances to try, and the number of processes."""

    kinds: Sequence[DisturbanceKind]
    limit: int
    jobs: int


def search_scenario(source: ScenarioSource, number: int, options: SearchOptions) -> SearchResult:
    """Search the scenario with this number. Raise ScenarioFailed."""
    title = source.load()[number].name
    progress = ProgressLine(title, options.jobs)
    try:
        if options.jobs == 1:
            return _search_share(source, number, options, Share(), lambda state: progress.show(0, state))
        return _search_in_processes(source, number, options, progress)
    finally:
        progress.clear()


def _search_share(
    source: ScenarioSource,
    number: int,
    options: SearchOptions,
    share: Share,
    on_progress: Callable[[SearchProgress], None],
) -> SearchResult:
    logging.disable(logging.ERROR)  # Operators log each disturbance, as they should.
    scenario = source.load()[number]
    return asyncio.run(search(scenario, kinds=options.kinds, limit=options.limit, share=share, on_progress=on_progress))


def _search_in_processes(
    source: ScenarioSource, number: int, options: SearchOptions, progress: ProgressLine
) -> SearchResult:
    context = multiprocessing.get_context("spawn")  # A fork would copy this process's threads in any state.
    messages: multiprocessing.Queue[Any] = context.Queue()
    began = time.perf_counter()
    shares = [Share(index, options.jobs) for index in range(options.jobs)]
    processes: list[BaseProcess] = [
        context.Process(target=_work, args=(source, number, options, share, messages), daemon=True) for share in shares
    ]
    for process in processes:
        process.start()
    try:
        results = _collect(messages, processes, progress)
    finally:
        for process in processes:
            process.terminate()
            process.join()
    return _merge(results, time.perf_counter() - began)


def _work(
    source: ScenarioSource, number: int, options: SearchOptions, share: Share, messages: multiprocessing.Queue[Any]
) -> None:
    """Search one share in a process of its own, and send progress, then the result or the reason of the failure."""
    try:
        result = _search_share(source, number, options, share, lambda state: messages.put((share.number, state)))
        messages.put((share.number, result))
    except ScenarioFailed as error:
        messages.put((share.number, str(error)))


def _collect(
    messages: multiprocessing.Queue[Any], processes: Sequence[BaseProcess], progress: ProgressLine
) -> list[SearchResult]:
    """Return the results of all processes. Raise ScenarioFailed if one fails or ends without a result."""
    results: dict[int, SearchResult] = {}
    while len(results) < len(processes):
        try:
            number, message = messages.get(timeout=_POLL_SECONDS)
        except queue.Empty:
            for number, process in enumerate(processes):
                if number not in results and process.exitcode not in (None, 0):
                    raise ScenarioFailed(
                        f"process {number + 1} of {len(processes)} ended with {process.exitcode}; try --jobs 1"
                    ) from None
            continue
        if isinstance(message, str):
            raise ScenarioFailed(message)
        if isinstance(message, SearchResult):
            results[number] = message
        else:
            progress.show(number, message)
    return [results[number] for number in sorted(results)]


def _merge(results: Sequence[SearchResult], seconds: float) -> SearchResult:
    first = results[0]
    return SearchResult(
        first.scenario,
        tried=sorted(tried for result in results for tried in result.tried),
        findings=[finding for result in results for finding in result.findings],
        seconds=seconds,
        unstable=next((result.unstable for result in results if result.unstable), []),
        random=list(dict.fromkeys(pattern for result in results for pattern in result.random)),
        without_verdict=sorted(tried for result in results for tried in result.without_verdict),
    )


@dataclass(slots=True)
class ProgressLine:
    """A line on standard error: the disturbances that are done, the findings, and the time left.

    A terminal has one line that changes; elsewhere there is a new line every ten seconds.
    """

    title: str
    jobs: int
    write: Callable[[str], Any] = field(default_factory=lambda: sys.stderr.write)
    is_terminal: bool = field(default_factory=lambda: sys.stderr.isatty())
    clock: Callable[[], float] = time.monotonic
    _states: dict[int, SearchProgress] = field(default_factory=dict)
    _last: float = 0.0

    def __post_init__(self) -> None:
        self._last = self.clock()

    def show(self, number: int, state: SearchProgress) -> None:
        """Print the progress of all processes, of which one with this number has gone on."""
        self._states[number] = state
        if len(self._states) < self.jobs:
            return  # The others have not begun: the time left is unknown.
        text = self._text()
        if self.is_terminal:
            self.write(f"\r{text}\x1b[K")
        elif self.clock() - self._last >= _SECONDS_BETWEEN_LINES:
            self._last = self.clock()
            self.write(f"{text}\n")

    def clear(self) -> None:
        """Remove the line from the terminal."""
        if self.is_terminal and self._states:
            self.write("\r\x1b[K")

    def _text(self) -> str:
        states = self._states.values()
        done, total = sum(state.done for state in states), sum(state.total for state in states)
        left = max(state.seconds_left for state in states)
        findings = sum(state.findings for state in states)
        return f"{self.title}: {done} of {total} disturbances, {findings} findings, {left:.0f} s left"
