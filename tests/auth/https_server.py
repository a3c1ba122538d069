"""Another server on loopback, with a certificate: an OIDC provider or a webhook, as a test wants it."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from pinnace.auth.certificates.authority import issue, new_ca

Answer = Callable[[str, Any], Any]
"""Given the path and the document that was sent: what is answered. Bytes go out as they are, a number as a status."""


@dataclass(slots=True)
class HttpsServer:
    url: str
    ca: Path
    requests: list[tuple[str, Any]] = field(default_factory=list)

    def kubeconfig(self, path: Path, *, at: str = "/") -> Path:
        """A file that tells a webhook's client where to go."""
        config = {
            "clusters": [{"name": "c", "cluster": {"server": self.url + at, "certificate-authority": str(self.ca)}}],
            "users": [{"name": "u", "user": {"token": "from-the-api-server"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        path.write_text(json.dumps(config))
        return path


@contextmanager
def https_server(directory: Path, answer: Answer) -> Iterator[HttpsServer]:
    ca = new_ca(name="another authority")
    pair = issue(ca, common_name="127.0.0.1", server_names=["127.0.0.1"])
    for name, content in (("ca.crt", ca.certificate_pem), ("tls.crt", pair.certificate_pem), ("tls.key", pair.key_pem)):
        (directory / name).write_bytes(content)
    server: HttpsServer

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._reply(None)

        def do_POST(self) -> None:
            self._reply(json.loads(self.rfile.read(int(self.headers["content-length"]))))

        def _reply(self, sent: Any) -> None:
            server.requests.append((self.path, sent))
            given = answer(self.path, sent)
            body = given if isinstance(given, bytes) else json.dumps(given).encode()
            self.send_response(given if isinstance(given, int) else 200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "tls.crt", directory / "tls.key")
    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.socket = context.wrap_socket(listening.socket, server_side=True)
    server = HttpsServer(f"https://127.0.0.1:{listening.server_port}", directory / "ca.crt")
    thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        listening.shutdown()
        thread.join()
        listening.server_close()
