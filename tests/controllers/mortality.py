"""Managers that die after a number of writes: what they have begun, the next one has to finish."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from tests.server.in_process import InProcess

from pinnace.auth.certificates.authority import CertificateFiles
from pinnace.client.transport import Answer, ConnectionLost, Stream, Transport
from pinnace.cluster.controllers import controllers_of
from pinnace.cluster.in_process import InProcessTransport
from pinnace.model.users import User
from pinnace.testing.clock import ManualClock


@dataclass(slots=True)
class Life:
    """How many writes a manager has left. Its last one is stored, but the answer does not arrive."""

    writes: int

    @property
    def is_over(self) -> bool:
        return self.writes <= 0


@dataclass(slots=True)
class Journal:
    """The objects created in all lives: a path for each."""

    created: list[str] = field(default_factory=list)
    writes: int = 0
    """Writes of any sort, Events aside."""
    forbidden: list[str] = field(default_factory=list)
    """The requests that the role of a controller does not allow."""

    def count(self, plural: str) -> int:
        return sum(path.endswith(f"/{plural}") for path in self.created)


class MortalTransport:
    """Refuses writes once the life of its manager is over. Reads go on, so that the manager comes to rest."""

    def __init__(self, inner: Transport, life: Life, journal: Journal) -> None:
        self._inner = inner
        self._life = life
        self._journal = journal

    async def request(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        if method == "GET" or "reviews" in target:  # A review changes nothing.
            answer = await self._inner.request(method, target, body, headers)
            self._note_refusal(method, target, answer)
            return answer
        if self._life.is_over:
            raise ConnectionLost("the manager has been killed", was_sent=False)
        if "/events" in target:  # Events may be lost: they end no life.
            return await self._inner.request(method, target, body, headers)
        answer = await self._inner.request(method, target, body, headers)
        if answer.status >= 400:
            self._note_refusal(method, target, answer)
            return answer
        self._life.writes -= 1
        self._journal.writes += 1
        if method == "POST" and answer.status == 201:
            self._journal.created.append(target.partition("?")[0])
        if self._life.is_over:
            raise ConnectionLost("the manager has been killed", was_sent=True)
        return answer

    def _note_refusal(self, method: str, target: str, answer: Answer) -> None:
        if answer.status == 403 and b"cannot" in answer.body:
            self._journal.forbidden.append(f"{method} {target}")

    async def stream(self, target: str, headers: Mapping[str, str], *, silence: float) -> Stream | Answer:
        return await self._inner.stream(target, headers, silence=silence)

    async def close(self) -> None:
        await self._inner.close()


async def live(
    api: InProcess,
    clock: ManualClock,
    *,
    only: Collection[str],
    writes: int,
    journal: Journal,
    files: CertificateFiles | None = None,
) -> bool:
    """Run controllers until they rest or have made so many writes. Return whether they came to rest."""
    life = Life(writes)

    def transport_of(user: User) -> Transport:
        return MortalTransport(InProcessTransport(api.plane.local(user)), life, journal)

    manager = controllers_of(api.plane, files, clock=clock, transport_of=transport_of, only=only)
    async with manager.running():
        await manager.settle()
    return not life.is_over
