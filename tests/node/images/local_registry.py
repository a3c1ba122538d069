"""Debian's docker-registry on loopback, with images that tests push."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPResponse
from pathlib import Path

from tests.free_ports import free_port
from tests.machine import need
from tests.node.images.image_files import BuiltImage, digest

_CONFIG = """
version: 0.1
log: {{level: error, accesslog: {{disabled: true}}}}
storage: {{filesystem: {{rootdirectory: {directory}}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""
_AUTH = """
auth: {{htpasswd: {{realm: test, path: {path}}}}}
"""
USER, PASSWORD = "reader", "secret"
_USERS = f"{USER}:$2b$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a\n"


@dataclass(frozen=True)
class LocalRegistry:
    address: str
    directory: Path

    def push(self, name: str, image: BuiltImage) -> None:
        for blob in image.blobs:
            started = self.request("POST", f"{name}/blobs/uploads/")
            location = started.headers["Location"]
            place = location if location.startswith("http") else f"http://{self.address}{location}"
            joint = "&" if "?" in place else "?"
            self._send("PUT", f"{place}{joint}digest={digest(blob)}", blob, "application/octet-stream")
        self.push_manifest(name, digest(image.manifest), image.manifest)

    def push_manifest(self, name: str, version: str, content: bytes, kind: str = "manifest") -> None:
        media_type = f"application/vnd.oci.image.{kind}.v1+json"
        self._send("PUT", f"http://{self.address}/v2/{name}/manifests/{version}", content, media_type)

    def request(self, method: str, path: str) -> HTTPResponse:
        return self._send(method, f"http://{self.address}/v2/{path}", b"", "")

    def blob_file(self, content: bytes) -> Path:
        """The file in which the registry keeps a blob: tests damage it."""
        name = digest(content).removeprefix("sha256:")
        return self.directory / f"docker/registry/v2/blobs/sha256/{name[:2]}/{name}/data"

    def _send(self, method: str, url: str, data: bytes, media_type: str) -> HTTPResponse:
        headers = {"Content-Type": media_type} if media_type else {}
        sent = urllib.request.Request(url, data or None, headers, method=method)
        answer: HTTPResponse = urllib.request.urlopen(sent, timeout=60)
        return answer


@contextlib.contextmanager
def run_registry(directory: Path, *, needs_password: bool = False) -> Iterator[LocalRegistry]:
    """Run a registry on the data in a directory."""
    program = need("docker-registry")
    port = free_port()
    config, users = directory / f"config-{port}.yml", directory / "users"
    users.write_text(_USERS)
    auth = _AUTH.format(path=users) if needs_password else ""
    config.write_text(_CONFIG.format(directory=directory / "data", port=port) + auth)
    process = subprocess.Popen([program, "serve", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        result = LocalRegistry(f"127.0.0.1:{port}", directory / "data")
        _wait_for(result)
        yield result
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _wait_for(registry: LocalRegistry) -> None:
    for _ in range(1200):
        try:
            registry.request("GET", "")
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError("docker-registry does not answer on loopback")
