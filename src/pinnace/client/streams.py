"""What goes on between a client and a pod: its logs, commands in its containers, and connections to its ports.

async for line in client.logs("web", follow=True): ...

result = await client.exec("web", ["ls", "-l"])                  # result.code, result.stdout, result.stderr

async with client.exec("web", ["sh"], stdin=True) as session:
    await session.write(b"echo hello\\n")
    await session.close_stdin()
    async for piece in session.stdout: ...
    code = await session.wait()

async with client.port_forward("web", 8080) as forward:          # forward.url is http://127.0.0.1:...
    ...
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from pinnace.client.exchange import Exchange, Parameters, target_of
from pinnace.client.refusals import error_of
from pinnace.client.transport import Answer, Socket, SocketTransport, Stream

if TYPE_CHECKING:
    from pinnace.client.commands import Execution
    from pinnace.client.ports import PortForward

NEVER = 10 * 365 * 86_400.0
"""A log may be silent for as long as its container is."""


class PodStreams:
    """The part of a `Client` that streams. The names of pods are looked for in the client's namespace unless one is
    given; what the server refuses is raised as one of `pinnace.model.errors`."""

    namespace: str
    _exchange: Exchange

    async def logs(
        self,
        pod: str,
        *,
        namespace: str = "",
        container: str = "",
        follow: bool = False,
        previous: bool = False,
        timestamps: bool = False,
        tail_lines: int | None = None,
        since_seconds: int | None = None,
        since_time: str = "",
        limit_bytes: int | None = None,
    ) -> AsyncGenerator[str, None]:
        """The lines that a container has written, without their ends; if you `follow`, those that it goes on to write.

        Raises ConnectionLost if the connection breaks: what came before is good, and `since_time` goes on from there.
        """
        parameters: Parameters = {
            "container": container,
            "follow": follow,
            "previous": previous,
            "timestamps": timestamps,
            "tailLines": tail_lines,
            "sinceSeconds": since_seconds,
            "sinceTime": since_time,
            "limitBytes": limit_bytes,
        }
        target = target_of(self._pod_path(pod, namespace, "log"), parameters)
        async with (
            self._exchange.stream(target, accept="*/*", silence=NEVER) as stream,
            aclosing(_text_lines(stream)) as lines,
        ):
            async for line in lines:
                yield line

    def exec(
        self,
        pod: str,
        command: Sequence[str],
        *,
        namespace: str = "",
        container: str = "",
        stdin: bool = False,
        tty: bool = False,
    ) -> Execution:
        """Run a command in a container: `await` it for all it wrote and its exit code, or talk to it in a `with`."""
        query = [("command", word) for word in command]
        return self._execution("exec", pod, query, namespace=namespace, container=container, stdin=stdin, tty=tty)

    def attach(
        self, pod: str, *, namespace: str = "", container: str = "", stdin: bool = False, tty: bool = False
    ) -> Execution:
        """As `exec`, with the process that the container runs already."""
        return self._execution("attach", pod, [], namespace=namespace, container=container, stdin=stdin, tty=tty)

    def port_forward(self, pod: str, port: int, *, namespace: str = "", local_port: int = 0) -> PortForward:
        """Connections to a port of a pod: those that are made to a port of this machine while you are in its `with`,
        and those that you `open` yourself. Without `local_port` the system chooses one."""
        from pinnace.client.ports import PortForward  # noqa: PLC0415 - needed by few of those who have a client.

        target = f"{self._pod_path(pod, namespace, 'portforward')}?{urlencode({'ports': port})}"
        return PortForward(lambda: self._socket(target, ["v4.channel.k8s.io"]), local_port=local_port)

    def _execution(
        self,
        kind: str,
        pod: str,
        query: list[tuple[str, str]],
        *,
        namespace: str,
        container: str,
        stdin: bool,
        tty: bool,
    ) -> Execution:
        from pinnace.client.commands import Execution  # noqa: PLC0415 - needed by few of those who have a client.

        wanted = {"stdin": stdin, "stdout": True, "stderr": not tty, "tty": tty}
        query = [*query, *((name, "true") for name, is_wanted in wanted.items() if is_wanted)]
        if container:
            query.append(("container", container))
        target = f"{self._pod_path(pod, namespace, kind)}?{urlencode(query, quote_via=quote)}"
        return Execution(lambda: self._socket(target, ["v5.channel.k8s.io", "v4.channel.k8s.io"]))

    async def _socket(self, target: str, protocols: Sequence[str]) -> Socket:
        transport = self._exchange.transport
        if not isinstance(transport, SocketTransport):
            raise TypeError(f"{type(transport).__name__} carries no WebSockets")
        socket = await transport.open_socket(target, self._exchange.headers, protocols)
        if isinstance(socket, Answer):
            raise error_of(socket)
        return socket

    def _pod_path(self, pod: str, namespace: str, subresource: str) -> str:
        namespace = quote(namespace or self.namespace, safe="")
        return f"/api/v1/namespaces/{namespace}/pods/{quote(pod, safe='')}/{subresource}"


async def _text_lines(stream: Stream) -> AsyncGenerator[str, None]:
    """Empty ones too, and the last one even if it has no end: a log is not always made of lines."""
    rest = b""
    async for chunk in stream:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.decode("utf-8", "replace")
    if rest:
        yield rest.decode("utf-8", "replace")
