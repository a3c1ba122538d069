"""Key order: where a prefix ends, and the keys of a store kept sorted at the price of a sort per listing."""

from __future__ import annotations

from bisect import bisect_left, insort

_FEW = 64
_LAST = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


def check_key(key: str) -> None:
    """Refuse text that UTF-8 cannot carry with ValueError, before it meets other people's writes."""
    if not key.isascii():
        key.encode()


def end_of(prefix: str) -> str | None:
    """Return the smallest text after all that begins with `prefix`; None if there is nothing after."""
    stem = prefix.rstrip(chr(_LAST))
    if not stem:
        return None
    following = ord(stem[-1]) + 1
    return stem[:-1] + chr(_SURROGATES.stop if following in _SURROGATES else following)


class SortedKeys:
    """A set of keys that can be read in order.

    Adding and removing are O(1): changes wait until the next read. Then a few keys are put in their places
    one by one, and many by a single merge of two runs, which is what Python's sort does.
    """

    def __init__(self, keys: list[str]) -> None:
        self._keys = sorted(keys)
        self._added: list[str] = []
        self._removed: set[str] = set()

    def fork(self) -> SortedKeys:
        """Return a set with the same keys, which changes on its own."""
        twin = SortedKeys([])
        self._settle()
        twin._keys = self._keys.copy()
        return twin

    def add(self, key: str) -> None:
        """Add a key that is not there."""
        if key in self._removed:
            self._removed.discard(key)
        else:
            self._added.append(key)

    def remove(self, key: str) -> None:
        """Remove a key that is there."""
        self._removed.add(key)
        if len(self._removed) > 1000 and 2 * len(self._removed) > len(self._keys) + len(self._added):
            self._settle()  # There may never be a read: removed keys must not pile up.

    def between(self, first: str, end: str | None) -> list[str]:
        """Return the keys from `first` to before `end`, in order."""
        self._settle()
        return self._keys[bisect_left(self._keys, first) : None if end is None else bisect_left(self._keys, end)]

    def _settle(self) -> None:
        if self._removed:
            if len(self._removed) <= _FEW:
                self._remove_singly()
            else:
                self._keys = [key for key in self._keys if key not in self._removed]
                self._added = [key for key in self._added if key not in self._removed]
            self._removed.clear()
        if self._added:
            if len(self._added) <= _FEW:
                for key in self._added:
                    insort(self._keys, key)
            else:
                self._added.sort()
                self._keys += self._added
                self._keys.sort()
            self._added = []

    def _remove_singly(self) -> None:
        for key in self._removed:
            at = bisect_left(self._keys, key)
            if at < len(self._keys) and self._keys[at] == key:
                del self._keys[at]
            else:
                self._added.remove(key)
