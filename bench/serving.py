"""Prints the CPU that the HTTP server takes per request over TLS, with a handler that does nothing. Needs wrk."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import uvloop

from pinnace.auth.certificates.authority import ensure_certificates
from pinnace.server.http.server import JSON_HEADERS, HttpServer, Request, Response, tls_context

GET = Response(200, JSON_HEADERS, b"x" * 1200)
LIST = Response(200, JSON_HEADERS, b"y" * 1_300_000)
PIECES = Response(200, JSON_HEADERS, [b"z" * 2600] * 500)
BODIES = {"/get": GET, "/list": LIST, "/pieces": PIECES}


def answer(request: Request) -> Response:
    return BODIES[request.path]


async def answer_later(request: Request) -> Response:
    return BODIES[request.path]


async def serve(directory: Path, *, tasks: bool) -> None:
    files = ensure_certificates(directory)
    server = HttpServer()
    context = tls_context(certificate=files.server.certificate, key=files.server.key, client_ca=files.ca.certificate)
    await server.start("127.0.0.1", 0, context, answer_later if tasks else answer)
    print(server.port, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.stop(1.0)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def load(port: int, path: str, *, connections: int, seconds: int) -> int:
    """Ask for `path` again and again; how often it was answered."""
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", f"https://127.0.0.1:{port}{path}"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    if "Non-2xx" in printed or "Socket errors" in printed:
        print(printed, file=sys.stderr)
    counted = re.search(r"(\d+) requests in", printed)
    return int(counted[1]) if counted else 0


def measure(*, mode: str, seconds: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, __file__, "serve", directory, mode]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdin is not None and child.stdout is not None
            port = int(child.stdout.readline())
            load(port, "/get", connections=64, seconds=1)
            for path, connections in (("/get", 64), ("/list", 8), ("/pieces", 8)):
                before = cpu_seconds(child.pid)
                answered = load(port, path, connections=connections, seconds=seconds)
                cpu = (cpu_seconds(child.pid) - before) / max(1, answered)
                print(f"{mode:6} {path:8} {answered / seconds:9.0f} requests/s {cpu * 1e6:8.1f} µs CPU per request")
            child.stdin.close()


def main() -> None:
    if len(sys.argv) > 3 and sys.argv[1] == "serve":
        uvloop.run(serve(Path(sys.argv[2]), tasks=sys.argv[3] == "task"))
    elif shutil.which("wrk") is None:
        print("wrk is not installed: nothing measured")
    else:
        for mode in ("direct", "task"):
            measure(mode=mode, seconds=4)


if __name__ == "__main__":
    main()
