"""Fails each test in which the product holds the event loop for too long, keeps the garbage collector short, and
counts the tests that were skipped.

`@pytest.mark.stalls(reason=…)` is for tests that hold it on purpose.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from tests.machine import summary_of
from tests.stall_gate import StallGate

GATE = StallGate()
COLLECTION = 3_000
"""New objects before the garbage collector looks at them: a cluster makes 50,000 and none of them is garbage yet."""

LONG_FILES = (
    "hostile/test_attacks.py",
    "consistency/test_consistency.py",
    "network/services/test_ordinary_user.py",
    "embedded/test_ordinary_user.py",
    "examples/test_ordinary_user.py",
    "network/dns/test_pods.py",
)


settings.register_profile("any", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", settings.get_profile("any"), derandomize=True)
settings.load_profile("any")
"""Properties are tried with any values, however long that takes; with `--hypothesis-profile=same` always the same."""


def pytest_configure() -> None:
    GATE.install()
    heed_signals()
    os.environ.setdefault("PINNACE_NO_NODE", "1")  # A node takes a while to start, and few tests need one.
    os.environ.setdefault("PINNACE_OFFLINE", "1")  # No test pulls an image from beyond loopback.
    os.environ.setdefault("PINNACE_HOST_IMAGE", "1")  # Pods of the tests are programs of this machine, also as root.
    gc.set_threshold(COLLECTION)


def heed_signals() -> None:
    """Let the programs of the tests heed signals that this process ignores, as under nohup or in the background.

    A program inherits what is ignored. It does not inherit a handler, by which this process goes on to do nothing.
    """
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest: a worker that begins one of them last works alone at the end."""
    items.sort(key=lambda item: not str(item.path).endswith(LONG_FILES))


def pytest_collection_finish() -> None:
    freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    if nextitem is None or nextitem.path != item.path:
        freeze()


def freeze() -> None:
    """Exempt all that is alive now from garbage collection.

    The modules and tests of the whole suite are 600,000 objects. A full collection takes 0.7 s for them, and every
    second test makes enough objects to cause one.
    """
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the figures that tests record as the property `figure`, and the reasons of skipped tests: the processes
    of xdist have no terminal.
    """
    for report in terminalreporter.getreports("passed"):
        for name, text in report.user_properties:
            if name == "figure":
                terminalreporter.write_line(str(text))
    skipped = [str(report.longrepr[2]) for report in terminalreporter.getreports("skipped")]
    for line in summary_of(skipped):
        terminalreporter.write_line(line)


@pytest.fixture
def stall_gate() -> StallGate:
    return GATE


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    GATE.turns.clear()
    GATE.begin()
    yield
    if item.get_closest_marker("stalls") is None:
        for turn in GATE.turns:
            if turn.is_of_product:
                pytest.fail(str(turn), pytrace=False)
