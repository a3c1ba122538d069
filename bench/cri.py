"""containerd driven through CRI, beside which the pods of pinnace are measured. Needs root and Debian's containerd.

It has directories and a socket of its own, and an image of Debian's static busybox: nothing is pulled. Its sandboxes
use the host's network, so that no CNI plug-in is needed; that is less work than a pod of pinnace has.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import shutil
import statistics
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pinnace.process.grpc.connection import GrpcConnection
from pinnace.process.varint import encode_varint
from pinnace.store.etcd.wire import decode

_IMAGE = "docker.io/library/bench:1"
_SERVICE = b"/runtime.v1.RuntimeService/"
_SECONDS = 120.0
_HOST_NETWORK = 2
_CONFIG = """
version = 2
root = "{directory}/root"
state = "{directory}/state"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
  address = "{directory}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{image}"
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  restrict_oom_score_adj = true
"""


def missing() -> str:
    """Why containerd cannot be measured here; empty if it can."""
    if os.geteuid() != 0:
        return "needs root"
    absent = [name for name in ("containerd", "ctr", "runc", "busybox") if shutil.which(name) is None]
    return f"needs {', '.join(absent)} (Debian: containerd, busybox-static)" if absent else ""


def measure(starts: int, at_once: int) -> tuple[list[float], float]:
    """Return the seconds of pods started one after the other, and those of many started together."""
    with _containerd() as socket:
        return asyncio.run(_measure(socket, starts, at_once))


async def _measure(socket: Path, starts: int, at_once: int) -> tuple[list[float], float]:
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_unix_connection(
        lambda: GrpcConnection("localhost", is_tls=False, on_lost=lambda: None), str(socket)
    )
    sandboxes = [await _run_pod(connection, "warm")]
    times = []
    for number in range(starts):
        began = time.perf_counter()
        sandboxes.append(await _run_pod(connection, f"one-{number}"))
        times.append(time.perf_counter() - began)
    began = time.perf_counter()
    sandboxes += await asyncio.gather(*(_run_pod(connection, f"many-{number}") for number in range(at_once)))
    together = time.perf_counter() - began
    await asyncio.gather(*(_call(connection, "StopPodSandbox", _text(1, sandbox)) for sandbox in sandboxes))
    await asyncio.gather(*(_call(connection, "RemovePodSandbox", _text(1, sandbox)) for sandbox in sandboxes))
    connection.close()
    return times, together


async def _run_pod(connection: GrpcConnection, name: str) -> str:
    """Run a sandbox with one container, as kubelet does, and return the id of the sandbox."""
    metadata = _text(1, name) + _text(2, name) + _text(3, "default")
    options = _nested(1, _number(1, _HOST_NETWORK))
    config = _nested(1, metadata) + _nested(8, _nested(2, options))
    sandbox = _id(await _call(connection, "RunPodSandbox", _nested(1, config)))
    command = _text(3, "/bin/busybox") + _text(3, "sleep") + _text(3, "1000000")
    container = _nested(1, _text(1, "main")) + _nested(2, _text(1, _IMAGE)) + command
    created = await _call(connection, "CreateContainer", _text(1, sandbox) + _nested(2, container) + _nested(3, config))
    await _call(connection, "StartContainer", _text(1, _id(created)))
    return sandbox


async def _call(connection: GrpcConnection, method: str, message: bytes) -> bytes:
    return await connection.unary(_SERVICE + method.encode(), message, seconds=_SECONDS)


def _id(answer: bytes) -> str:
    message = decode(answer)[1]
    assert isinstance(message, bytes)
    return message.decode()


def _number(field: int, value: int) -> bytes:
    return encode_varint(field << 3) + encode_varint(value)


def _nested(field: int, content: bytes) -> bytes:
    return encode_varint(field << 3 | 2) + encode_varint(len(content)) + content


def _text(field: int, value: str) -> bytes:
    return _nested(field, value.encode())


@contextmanager
def _containerd() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="pinnace-cri-"))
    config, socket = directory / "config.toml", directory / "containerd.sock"
    config.write_text(_CONFIG.format(directory=directory, image=_IMAGE))
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(["containerd", "--config", str(config)], stdout=log, stderr=log)
    try:
        while not socket.exists():
            if process.poll() is not None:
                raise RuntimeError(f"containerd has ended: {(directory / 'log').read_text()[-2000:]}")
            time.sleep(0.05)
        archive = _write_image(directory / "image.tar")
        subprocess.run(
            ["ctr", "--address", str(socket), "--namespace", "k8s.io", "images", "import", str(archive)],
            check=True,
            capture_output=True,
            timeout=_SECONDS,
        )
        yield socket
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(directory, ignore_errors=True)


def _write_image(path: Path) -> Path:
    """Write a Docker archive with busybox alone, which sleeps as a sandbox's own container."""
    program = shutil.which("busybox")
    assert program is not None
    layer = _tar({"bin/busybox": Path(program).read_bytes()}, mode=0o755)
    configuration = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Cmd": ["/bin/busybox", "sleep", "1000000"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [_IMAGE], "Layers": ["layer.tar"]}]
    files = {"config.json": json.dumps(configuration).encode(), "layer.tar": layer}
    path.write_bytes(_tar({**files, "manifest.json": json.dumps(manifest).encode()}))
    return path


def _tar(files: dict[str, bytes], mode: int = 0o644) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), mode
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


if __name__ == "__main__":
    times, together = measure(20, 100)
    print(f"{statistics.median(times) * 1e3:.0f} ms, 100 in {together:.2f} s")
