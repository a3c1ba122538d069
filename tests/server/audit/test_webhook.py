"""Audit events are sent to a webhook in batches and sent again on failure; requests never wait."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from tests.auth.https_server import https_server
from tests.server.raw_http import until

from pinnace.auth.remote import RemoteConfigError, RemoteError
from pinnace.cluster.control_plane import build
from pinnace.cluster.settings import Settings
from pinnace.server.audit.settings import AuditSettings, open_audit
from pinnace.server.audit.webhook import AuditWebhook, BatchOptions
from pinnace.server.bootstrap.creation import bootstrap
from pinnace.store.memory import MemoryStore
from pinnace.testing.clock import ManualClock


class Receiving:
    """Accepts events, or fails as often as the test wants; can be delayed."""

    def __init__(self, *, failures: int = 0, status: int = 503) -> None:
        self.batches: list[list[int]] = []
        self.attempts = 0
        self.failures = failures
        self.status = status
        self.is_open = asyncio.Event()
        self.is_open.set()

    async def send(self, document: bytes) -> None:
        self.attempts += 1
        await self.is_open.wait()
        if self.failures:
            self.failures -= 1
            raise RemoteError(f"it answered {self.status}", status=self.status)
        sent = json.loads(document)
        assert (sent["kind"], sent["apiVersion"]) == ("EventList", "audit.k8s.io/v1")
        self.batches.append([item["n"] for item in sent["items"]])


def line(number: int) -> bytes:
    return b'{"n":%d}\n' % number


async def turn() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_events_wait_for_each_other_but_not_for_long() -> None:
    clock, receiving = ManualClock(), Receiving()
    webhook = AuditWebhook(receiving.send, clock, BatchOptions(most_together=3, longest_wait=30))
    for number in range(4):
        webhook.write(line(number))
    await turn()
    assert receiving.batches == [[0, 1, 2]]
    await clock.advance(29)
    assert len(receiving.batches) == 1
    await clock.advance(2)
    assert receiving.batches == [[0, 1, 2], [3]]
    await webhook.close()


async def test_a_failed_item_comes_again_later_each_time() -> None:
    clock, receiving = ManualClock(), Receiving(failures=3)
    webhook = AuditWebhook(receiving.send, clock, BatchOptions(most_together=1, first_pause=10))
    webhook.write(line(1))
    await turn()
    attempts = []
    for _ in range(8):
        attempts.append(receiving.attempts)
        await clock.advance(12.5)
    assert attempts == sorted(attempts) and attempts[:3] == [1, 2, 2]
    assert (receiving.attempts, receiving.batches, webhook.lost) == (4, [[1]], 0)
    await webhook.close()


@pytest.mark.parametrize(("failures", "status", "attempts"), [(99, 503, 5), (1, 400, 1)])
async def test_in_the_end_it_is_lost_and_that_is_reported(
    failures: int, status: int, attempts: int, caplog: pytest.LogCaptureFixture
) -> None:
    clock, receiving = ManualClock(), Receiving(failures=failures, status=status)
    webhook = AuditWebhook(receiving.send, clock, BatchOptions(most_together=2))
    with caplog.at_level(logging.ERROR):
        webhook.write(line(1))
        webhook.write(line(2))
        await turn()
        await clock.advance(1_000)
    assert (receiving.attempts, webhook.lost) == (attempts, 2)
    assert f"2 audit events are lost: it answered {status}" in caplog.text
    await webhook.close()


async def test_a_server_that_hangs_costs_events_and_no_memory() -> None:
    clock, receiving = ManualClock(), Receiving()
    receiving.is_open.clear()
    webhook = AuditWebhook(receiving.send, clock, BatchOptions(most_together=10, most_waiting=50))
    for number in range(1_000):
        webhook.write(line(number))
        if number % 10 == 9:
            await asyncio.sleep(0)
    await turn()
    assert receiving.attempts == 4  # So many are on their way at once.
    assert webhook.lost == 1_000 - 4 * 10 - 50
    receiving.is_open.set()
    await turn()
    assert sorted(number for batch in receiving.batches for number in batch) == list(range(90))
    await webhook.close()


async def test_stopping_sends_what_is_left_and_waits_for_no_pause() -> None:
    clock, receiving = ManualClock(), Receiving(failures=1)
    webhook = AuditWebhook(receiving.send, clock, BatchOptions(most_together=2))
    for number in range(5):
        webhook.write(line(number))
    await turn()
    await webhook.close()
    assert sorted(number for batch in receiving.batches for number in batch) == list(range(5))
    webhook.write(line(6))
    assert webhook.lost == 1
    await webhook.close()


async def test_stopping_does_not_wait_for_a_server_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pinnace.server.audit.webhook._CLOSING_SECONDS", 0.01)
    receiving = Receiving()
    receiving.is_open.clear()
    webhook = AuditWebhook(receiving.send, ManualClock(), BatchOptions(most_together=1))
    for number in range(6):
        webhook.write(line(number))
    await webhook.close()
    assert webhook.lost == 6


POLICY = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n"


async def test_events_arrive_over_https_and_in_the_log_alike(tmp_path: Path) -> None:
    policy, log_path = tmp_path / "policy.yaml", tmp_path / "audit.log"
    policy.write_text(POLICY)
    answers = iter([503])

    def answer(path: str, sent: Any) -> Any:
        return next(answers, b"")  # Once it fails; then it says nothing, which is enough.

    with https_server(tmp_path, answer) as server:
        settings = AuditSettings(
            policy_file=policy,
            log_path=log_path,
            webhook=server.kubeconfig(tmp_path / "config", at="/events?timeout=30s"),
            batching=BatchOptions(longest_wait=0.01, first_pause=0.01),
        )
        auditor = open_audit(settings)
        assert auditor is not None
        store = MemoryStore()
        plane = await build(Settings(), store, audit=auditor)
        await bootstrap(plane.foundation, plane.local(), ("127.0.0.1", 6443))
        await plane.local().request("GET", "/version")
        metrics = plane.metrics.text()
        await until(lambda: bool(server.requests))  # Events first sent while the server stops are not sent again.
        await auditor.close()
        await store.close()
        arrived = [event for path, sent in server.requests[1:] for event in sent["items"] if path.startswith("/events")]
    logged = [json.loads(text) for text in log_path.read_bytes().splitlines()]
    key = ["auditID", "stage", "requestURI", "verb"]
    assert sorted([event[name] for name in key] for event in arrived) == sorted(
        [event[name] for name in key] for event in logged
    )
    assert "/version" in [event["requestURI"] for event in arrived]
    assert f"apiserver_audit_event_total {len(logged)}" in metrics


def test_a_webhook_file_that_says_nothing_is_refused(tmp_path: Path) -> None:
    policy, config = tmp_path / "policy.yaml", tmp_path / "config"
    policy.write_text(POLICY)
    config.write_text("clusters: []")
    with pytest.raises(RemoteConfigError, match="does not say how to reach a server"):
        open_audit(AuditSettings(policy_file=policy, webhook=config))
