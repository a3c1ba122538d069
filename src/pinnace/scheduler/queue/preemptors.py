"""The pods that wait for their victims, and the victims that each of them waits for."""

from __future__ import annotations

from collections.abc import Iterable


class Preemptors:
    """A pod that has preempted others is tried again when the last of its victims has left, not at each of them."""

    def __init__(self) -> None:
        self._victims: dict[str, set[str]] = {}
        """The uids of the victims that are still there, by the uid of the waiting pod."""
        self._waiting: dict[str, set[str]] = {}
        """The uids of the pods that wait for a victim."""

    def add(self, preemptor: str, victims: Iterable[str]) -> None:
        """Let a pod wait for victims, all of which are still there."""
        self._victims[preemptor] = set(victims)
        for victim in self._victims[preemptor]:
            self._waiting.setdefault(victim, set()).add(preemptor)

    def remove(self, preemptor: str) -> None:
        """Forget a pod: it waits for nothing any more, or for something else."""
        for victim in self._victims.pop(preemptor, ()):
            some = self._waiting[victim]
            some.discard(preemptor)
            if not some:
                del self._waiting[victim]

    def is_victim(self, uid: str) -> bool:
        return uid in self._waiting

    def note_gone(self, victim: str) -> list[str]:
        """Take note that a victim has left; return the pods that waited for it as the last of theirs."""
        ready = []
        for preemptor in self._waiting.pop(victim, ()):
            left = self._victims[preemptor]
            left.discard(victim)
            if not left:
                del self._victims[preemptor]
                ready.append(preemptor)
        return ready
