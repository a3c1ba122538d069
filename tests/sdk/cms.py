"""A small REST service in a thread, for those who have to run while it does: kubectl, the code of a guide."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Row = dict[str, Any]


class Cms:
    """Sites at /sites, with ETags."""

    def __init__(self) -> None:
        self.sites: dict[str, Row] = {}
        handler = type("Handler", (_Handler,), {"cms": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@contextmanager
def running_cms() -> Iterator[Cms]:
    cms = Cms()
    try:
        yield cms
    finally:
        cms.server.shutdown()
        cms.server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    cms: Cms

    def do_GET(self) -> None:
        if self.path == "/sites":
            self._answer(200, {"results": list(self.cms.sites.values())})
        elif self._name in self.cms.sites:
            self._answer(200, self.cms.sites[self._name])
        else:
            self._answer(404)

    def do_POST(self) -> None:
        row = self._row()
        self.cms.sites[row["slug"]] = row
        self._answer(201)

    def do_PUT(self) -> None:
        row = self._row()
        if "test" in row["repository"]:
            self._answer(422, {"detail": "this is not for tests"})
        elif self._may_change():
            self.cms.sites[self._name] = row
            self._answer(204)

    def do_DELETE(self) -> None:
        if self._may_change():
            del self.cms.sites[self._name]
            self._answer(204)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is said."""

    @property
    def _name(self) -> str:
        return self.path.removeprefix("/sites/")

    def _may_change(self) -> bool:
        if self._name not in self.cms.sites:
            self._answer(404)
            return False
        if self.headers.get("If-Match") != _tag(self.cms.sites[self._name]):
            self._answer(412)
            return False
        return True

    def _row(self) -> Row:
        row: Row = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        return row

    def _answer(self, status: int, value: Row | None = None) -> None:
        if status == 200 and value is not None and self.headers.get("If-None-Match") == _tag(value):
            status, value = 304, None
        body = json.dumps(value).encode() if value is not None else b""
        self.send_response(status)
        if value is not None:
            self.send_header("ETag", _tag(value))
        if status not in (204, 304):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _tag(value: Row) -> str:
    return f'"{sha256(json.dumps(value).encode()).hexdigest()}"'
