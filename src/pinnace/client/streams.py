"""The streams between a client and a pod: logs, commands in containers, and connections to ports.

async for line in client.logs("web", follow=True): ...           # `log_bytes` for what is no text

result = await client.exec("web", ["ls", "-l"])                  # result.code, result.stdout, result.stderr

async with client.exec("web", ["sh"], stdin=True) as session:
    await session.write(b"echo hello\\n")
    await session.close_stdin()
    async for piece in session.stdout: ...
    code = await session.wait()

async with client.port_forward("web", 8080) as forward:          # forward.url is http://127.0.0.1:...
    ...

async with client.service_forward("web", 80) as forward:         # each connection goes to a ready pod of the Service
    ...
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, TypedDict, Unpack
from urllib.parse import quote, urlencode

from pinnace.client.exchange import Exchange, Parameters, target_of
from pinnace.client.status_errors import error_of
from pinnace.client.transport import Answer, Socket, SocketTransport

if TYPE_CHECKING:
    from pinnace.client.commands import Execution
    from pinnace.client.ports import PortForward

NEVER = 10 * 365 * 86_400.0
"""The longest silence of a log: a container may write nothing for years."""


class LogOptions(TypedDict, total=False):
    """The part of a log to read."""

    container: str
    """The container; may be left out if the pod has one."""
    follow: bool
    """Continue with new lines."""
    previous: bool
    """Read the log of the container before its last start."""
    timestamps: bool
    """Begin each line with its time."""
    tail_lines: int | None
    """Only the last lines."""
    since_seconds: int | None
    since_time: str
    """As in 2026-01-31T10:00:00Z."""
    limit_bytes: int | None


class PodStreams:
    """The part of a `Client` that streams. Pods are in the client's namespace unless one is given; an error of the
    server is raised as one of `pinnace.model.errors`."""

    namespace: str
    _exchange: Exchange

    async def logs(self, pod: str, *, namespace: str = "", **options: Unpack[LogOptions]) -> AsyncGenerator[str, None]:
        """Yield the lines of a container's log, without line ends; with `follow` also those written later.

        Bytes that are not UTF-8 become U+FFFD; `log_bytes` gives the original. Raise ConnectionLost if the connection
        breaks: the lines before are complete, and `since_time` resumes from there.
        """
        async with (
            aclosing(self.log_bytes(pod, namespace=namespace, **options)) as written,
            aclosing(_text_lines(written)) as lines,
        ):
            async for line in lines:
                yield line

    async def log_bytes(
        self, pod: str, *, namespace: str = "", **options: Unpack[LogOptions]
    ) -> AsyncGenerator[bytes, None]:
        """Like `logs`, but yield the bytes of the log in arbitrary chunks: for output that is not lines of text."""
        parameters: Parameters = {
            "container": options.get("container"),
            "follow": options.get("follow"),
            "previous": options.get("previous"),
            "timestamps": options.get("timestamps"),
            "tailLines": options.get("tail_lines"),
            "sinceSeconds": options.get("since_seconds"),
            "sinceTime": options.get("since_time"),
            "limitBytes": options.get("limit_bytes"),
        }
        target = target_of(self._pod_path(pod, namespace, "log"), parameters)
        async with self._exchange.stream(target, accept="*/*", silence=NEVER) as stream:
            async for chunk in stream:
                yield chunk

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
        """Run a command in a container: `await` it for its output and exit code, or use it in `async with`."""
        query = [("command", word) for word in command]
        return self._execution("exec", pod, query, namespace=namespace, container=container, stdin=stdin, tty=tty)

    def attach(
        self, pod: str, *, namespace: str = "", container: str = "", stdin: bool = False, tty: bool = False
    ) -> Execution:
        """Like `exec`, with the process that the container already runs."""
        return self._execution("attach", pod, [], namespace=namespace, container=container, stdin=stdin, tty=tty)

    def port_forward(self, pod: str, port: int, *, namespace: str = "", local_port: int = 0) -> PortForward:
        """Forward a port of this machine to a port of a pod within `async with`, or `open` connections directly.

        Without `local_port` the system chooses a free port.
        """
        from pinnace.client.ports import PortForward  # noqa: PLC0415 - few clients need it.

        return PortForward(lambda: self._open_port(pod, port, namespace), local_port=local_port)

    def service_forward(
        self, service: str, port: int | str, *, namespace: str = "", local_port: int = 0
    ) -> PortForward:
        """Forward a port of this machine to a port of a Service, by number or name.

        Each connection goes to a pod that is ready then, so that the forward survives its pods.
        """
        from pinnace.client.ports import PortForward, ServicePort  # noqa: PLC0415 - few clients need them.

        opener = ServicePort(
            namespace or self.namespace,
            service,
            port,
            fetch=self._exchange.fetch,
            connect=lambda pod: self._open_port(pod.pod, pod.port, pod.namespace),
        )
        return PortForward(opener.open, local_port=local_port)

    async def _open_port(self, pod: str, port: int, namespace: str) -> Socket:
        target = f"{self._pod_path(pod, namespace, 'portforward')}?{urlencode({'ports': port})}"
        return await self._socket(target, ["v4.channel.k8s.io"])

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
        from pinnace.client.commands import Execution  # noqa: PLC0415 - few clients need it.

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


async def _text_lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[str, None]:
    """Yield all lines, also empty ones and a last one without an end: a log need not consist of lines."""
    begun: list[bytes] = []
    async for chunk in chunks:
        *whole, rest = chunk.split(b"\n")
        if whole:
            whole[0] = b"".join((*begun, whole[0]))
            begun.clear()
        for line in whole:
            yield line.decode("utf-8", "replace")  # Only whole lines: a chunk may end within a character.
        if rest:
            begun.append(rest)
    if begun:
        yield b"".join(begun).decode("utf-8", "replace")
