"""Short deadlines for calls to an etcd with a problem."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pinnace.store.etcd import client, transactions

SHORT = 0.5


@contextmanager
def short_calls(seconds: float = SHORT) -> Iterator[None]:
    """Let calls to etcd fail soon. Only while it has a problem: a busy machine may need longer for a good answer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transactions, "CALL_SECONDS", seconds)
        patch.setattr("pinnace.store.etcd.store.CALL_SECONDS", seconds)
        patch.setattr("pinnace.store.etcd.store._CHECK_SECONDS", seconds)
        patch.setattr(client.EtcdClient.call, "__kwdefaults__", {"seconds": seconds})
        yield
