"""Snapshots of a cluster: its objects at one moment, from which other clusters are built in a millisecond."""

from __future__ import annotations

from dataclasses import dataclass

from pinnace.auth.certificates.authority import CertificateFiles
from pinnace.auth.users import AUTHENTICATED, MASTERS, User
from pinnace.cluster.control_plane import ControlPlane, build_on
from pinnace.cluster.foundation import fork_foundation
from pinnace.cluster.settings import Settings
from pinnace.server.cache.fanout import Fanout
from pinnace.store.memory import MemoryStore
from pinnace.testing.clock import ManualClock
from pinnace.testing.wire import certificates

ADMIN = User("admin", (MASTERS, AUTHENTICATED))


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """The objects and caches of a cluster. Each cluster that is built has a copy of them at that moment."""

    store: MemoryStore
    fanout: Fanout

    def build(self, settings: Settings, clock: ManualClock, token: str, files: CertificateFiles | None) -> ControlPlane:
        """Build a control plane with these objects."""
        store = self.store.fork()
        foundation = fork_foundation(settings, store, self.fanout.fork(store), clock)
        plane = build_on(foundation, settings, tokens={token: ADMIN}, files=files)
        plane.aggregation.show(certificates().front_proxy_client)
        return plane
