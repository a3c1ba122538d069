"""The client for scripts: every verb as a plain function call.

    from pinnace.client.sync import connect

    with connect() as client:
        client.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"a": "b"}})
        client.wait_for_rollout("apps/v1/Deployment", "web", timeout=60)
        for line in client.logs("web-0"):
            print(line)

It drives the asynchronous client in a thread, so that both do the same. In `async def` use `pinnace.client.connect`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pinnace.client.commands import Completed, Execution
from pinnace.client.connect import connect as connect_in_loop
from pinnace.client.kubeconfig import Access
from pinnace.client.ports import PortForward
from pinnace.client.sync.verbs import SyncVerbs

__all__ = ["SyncClient", "connect"]


class SyncClient(SyncVerbs):
    """One user of one server, for synchronous code. It may be used in several threads. Close it when done (`with`)."""

    def exec(self, pod: str, command: Sequence[str], *, namespace: str = "", container: str = "") -> Completed:
        """Run a command in a container, and return its output and exit code."""
        return self._call(_complete(self.client.exec(pod, command, namespace=namespace, container=container)))

    @contextmanager
    def port_forward(
        self, pod: str, port: int, *, namespace: str = "", local_port: int = 0
    ) -> Generator[PortForward, None, None]:
        """Forward a port of this machine to a port of a pod within a block: `forward.url`, `forward.port`."""
        with self._forwarding(self.client.port_forward(pod, port, namespace=namespace, local_port=local_port)) as open_:
            yield open_

    @contextmanager
    def service_forward(
        self, service: str, port: int | str, *, namespace: str = "", local_port: int = 0
    ) -> Generator[PortForward, None, None]:
        """Forward a port of this machine to a port of a Service within a block."""
        forward = self.client.service_forward(service, port, namespace=namespace, local_port=local_port)
        with self._forwarding(forward) as open_:
            yield open_

    @contextmanager
    def _forwarding(self, forward: PortForward) -> Generator[PortForward, None, None]:
        opened = self._call(forward.__aenter__())
        try:
            yield opened
        finally:
            self._call(forward.__aexit__(None, None, None))


async def _complete(execution: Execution) -> Completed:
    return await execution


def connect(
    access: Access | None = None,
    *,
    kubeconfig: Path | None = None,
    context: str = "",
    namespace: str = "",
    field_manager: str = "pinnace",
) -> SyncClient:
    """Return a client of the cluster that kubectl would use, or of the one that `access` describes.

    Nothing is sent yet; close the client when done (`with`). Raise KubeconfigError.
    """
    return SyncClient(
        lambda: connect_in_loop(
            access, kubeconfig=kubeconfig, context=context, namespace=namespace, field_manager=field_manager
        )
    )
