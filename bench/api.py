"""Measure what each verb costs: CPU time of the server process per request, with wrk over TLS at 64 connections.

    make bench

CPU per request is the figure that holds on noisy machines: user and system time of the server process, from before the
load to after it, divided by the requests that wrk counted. Wall-clock figures are printed beside it for orientation.
The peer's figures were measured on a machine of the same kind: kube-apiserver 1.36 with etcd 3.6, both added.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

CONNECTIONS = 64
SECONDS = 4
TURNS = 5
"""Of large lists and what they are compared with, which depend on the machine's memory more than the rest."""
READERS = 2
"""Threads of wrk for large answers: one cannot read them as fast as they are sent."""
COMMAND = os.environ.get("PINNACE_BENCH_COMMAND", "-m pinnace.cli.main").split()
TICKS = os.sysconf("SC_CLK_TCK")
DELETED_AT_MOST = 25_000

PEER_MS = {
    "create": 0.84,
    "get": 0.44,
    "list 1,000": 13.5,
    "list 100 of 1,000 by label": 1.93,
    "page of 500": 7.5,
    "merge patch": 1.36,
    "server-side apply": 1.63,
    "delete": 0.77,
}
GOAL = {name: 20.0 if name == "list 1,000" else 5.0 for name in PEER_MS}
GOAL["list 1,000, gzip"] = GOAL["list 1,000"]
ROLES = " by role"
"""The suffix of requests by a user whose roles have to be looked up, which may cost 15 % more."""
for name in ("create", "get", "list 1,000"):
    PEER_MS[name + ROLES] = PEER_MS[name]
    GOAL[name + ROLES] = GOAL[name] / 1.15

_LUA = """
local token, path = "{token}", "{path}"
local data = string.rep("x", 1000)
local thread = 0
function setup(t) t:set("id", thread); thread = thread + 1 end
local n = 0
wrk.headers["Authorization"] = "Bearer " .. token
wrk.headers["User-Agent"] = "wrk"
function request()
  n = n + 1
{request}
end
"""


@dataclass(frozen=True, slots=True)
class Server:
    processes: tuple[int, ...]
    port: int
    token: str

    @property
    def cpu_seconds(self) -> float:
        """Of all its processes: a real API server works together with its etcd."""
        spent = 0
        for process in self.processes:
            stat = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            spent += int(stat[11]) + int(stat[12])
        return spent / TICKS

    @property
    def resident_mb(self) -> float:
        status = Path(f"/proc/{self.processes[0]}/status").read_text()
        resident = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert resident is not None
        return int(resident[1]) / 1024


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    requests: int
    cpu_ms: float
    per_second: float


@contextmanager
def bare(size: int) -> Iterator[Server]:
    """A server that sends so many bytes whatever it is asked, and does nothing else."""
    process = subprocess.Popen([sys.executable, "-m", "bench.bare", str(size)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield Server((process.pid,), int(process.stdout.readline()), "")
    finally:
        process.terminate()
        process.wait(10)
        process.stdout.close()


@contextmanager
def started(home: Path | None = None) -> Iterator[tuple[Server, float]]:
    """A cluster on disk, and how long it took from the command to the kubeconfig. It has the objects in `home`."""
    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory) / "kubeconfig"
        command = [sys.executable, *COMMAND, "up", "--no-node", "--port", "0"]
        command += ["--no-controllers", "--data-dir", str(home or f"{directory}/data"), "--kubeconfig", str(config)]
        begun = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            while not config.exists():
                if process.poll() is not None:
                    raise SystemExit("the server did not start")
                time.sleep(0.005)
            took = time.perf_counter() - begun
            content = yaml.safe_load(config.read_text())
            port = int(content["clusters"][0]["cluster"]["server"].rpartition(":")[2])
            token = content["users"][0]["user"]["token"]
            yield Server((process.pid,), port, token), took
        finally:
            process.terminate()
            process.wait(10)


def load(server: Server, name: str, request: str, *, seconds: float = SECONDS, threads: int = 1) -> Row:
    path = "/api/v1/namespaces/default/configmaps"
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(_LUA.format(token=server.token, path=path, request=request))
        script.flush()
        command = ["wrk", f"-t{threads}", f"-c{CONNECTIONS}", f"-d{seconds}s", "-s", script.name]
        before = server.cpu_seconds
        printed = subprocess.run(
            [*command, f"https://127.0.0.1:{server.port}"], capture_output=True, text=True, check=True
        ).stdout
        spent = server.cpu_seconds - before
    if "Non-2xx" in printed and name != "delete":
        raise SystemExit(f"{name}: the server refused requests:\n{printed}")
    counted = re.search(r"(\d+) requests in ([\d.]+)s", printed)
    assert counted is not None, printed
    requests = int(counted[1])
    return Row(name, requests, spent * 1000 / requests, requests / float(counted[2]))


def in_turns(*loads: tuple[Server, str, str]) -> list[Row]:
    """The median of each of these loads, a server, a name and a request, which take turns.

    Longer ones: of few requests, those count that wrk cuts off at its end, and the handshakes before the first.
    """
    turns = [[load(*arguments, seconds=2 * SECONDS, threads=READERS) for arguments in loads] for _ in range(TURNS)]
    return [sorted(rows, key=lambda row: row.cpu_ms)[TURNS // 2] for rows in zip(*turns, strict=True)]


def call(server: Server, method: str, path: str, body: Any = None) -> Any:
    command = ["curl", "-sk", "-X", method, "-H", f"Authorization: Bearer {server.token}"]
    if body is not None:
        command += ["-H", "Content-Type: application/json", "-d", json.dumps(body)]
    url = f"https://127.0.0.1:{server.port}{path}"
    return json.loads(subprocess.run([*command, url], check=True, capture_output=True).stdout)


def with_role(server: Server) -> Server:
    """The same server for a service account that may edit everything, and nothing more."""
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    call(server, "POST", accounts, {"metadata": {"name": "bench"}})
    subject = {"kind": "ServiceAccount", "name": "bench", "namespace": "default"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    binding = {"metadata": {"name": "bench"}, "subjects": [subject], "roleRef": role}
    call(server, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
    return replace(server, token=call(server, "POST", f"{accounts}/bench/token", {})["status"]["token"])


def fill(server: Server, count: int, namespace: str) -> None:
    """Make `count` ConfigMaps of 1 KiB, one in ten of them labelled, through one curl with many transfers."""
    with tempfile.TemporaryDirectory() as directory:
        config = []
        for number in range(count):
            labels = {"group": "tenth"} if number % 10 == 0 else {"group": "rest"}
            body = {"metadata": {"name": f"c{number:05}", "labels": labels}, "data": {"value": "x" * 1000}}
            config.append(
                f'next\nurl = "https://127.0.0.1:{server.port}/api/v1/namespaces/{namespace}/configmaps"\n'
                f'insecure\nsilent\noutput = "/dev/null"\nheader = "Authorization: Bearer {server.token}"\n'
                f'header = "Content-Type: application/json"\ndata = {json.dumps(json.dumps(body))}\n'
            )
        path = Path(directory) / "curl"
        path.write_text("".join(config))
        subprocess.run(
            ["curl", "-sS", "--no-progress-meter", "--parallel", "--parallel-max", "32", "-K", str(path)], check=True
        )


def requests_in(thousand: str, patches: str, names: str = "b") -> dict[str, str]:
    """Return the requests of wrk for each row, in existing namespaces. New objects are named after `names`."""
    maps, applied = f"/api/v1/namespaces/{thousand}/configmaps", f"/api/v1/namespaces/{patches}/configmaps"
    headers = '["Authorization"]="Bearer " .. token, ["User-Agent"]="wrk"'
    return {
        "create": (
            "  local body = string.format("
            f'\'{{"metadata":{{"name":"{names}%d-%d"}},"data":{{"value":"%s"}}}}\', os.time(), n, data)\n'
            f'  return wrk.format("POST", path, {{["Content-Type"]="application/json", {headers}}}, body)'
        ),
        "get": f'return wrk.format("GET", "{maps}/c00500")',
        "list 1,000": f'return wrk.format("GET", "{maps}")',
        "list 1,000, gzip": f'return wrk.format("GET", "{maps}", {{["Accept-Encoding"]="gzip", {headers}}})',
        "list 100 of 1,000 by label": f'return wrk.format("GET", "{maps}?labelSelector=group%3Dtenth")',
        "page of 500": f'return wrk.format("GET", "{maps}?limit=500")',
        "merge patch": (
            '  local body = string.format(\'{"data":{"k%d":"%d"}}\', n % 10, n)\n'
            '  local name = "c" .. string.format("%05d", n % 1000)\n'
            f'  return wrk.format("PATCH", "{maps}/" .. name, '
            f'{{["Content-Type"]="application/merge-patch+json", {headers}}}, body)'
        ),
        "server-side apply": (
            '  local name = "a" .. string.format("%05d", n % 1000)\n'
            '  local body = string.format(\'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"%s"},'
            '"data":{"k":"%d","l":"%s"}}\', name, n, data)\n'
            f'  return wrk.format("PATCH", "{applied}/" .. name .. "?fieldManager=bench", '
            f'{{["Content-Type"]="application/apply-patch+yaml", {headers}}}, body)'
        ),
    }


def main() -> None:
    if shutil.which("wrk") is None:
        raise SystemExit("make bench needs wrk, a Debian package: apt-get install wrk")
    rows = []
    with started() as (server, took):
        time.sleep(1.5)
        idle = server.resident_mb
        for namespace in ("thousand", "patches", "deletes", "many"):
            call(server, "POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        fill(server, 1000, "thousand")
        requests = requests_in("thousand", "patches")
        for name in ("create", "get"):
            rows.append(load(server, name, requests[name]))
        user, by_role = with_role(server), requests_in("thousand", "patches", names="r")
        whole = call(server, "GET", "/api/v1/namespaces/thousand/configmaps")
        plain, packed = requests["list 1,000"], requests["list 1,000, gzip"]
        with bare(len(json.dumps(whole, separators=(",", ":")))) as sender:
            listed, lists_by_role, *beside = in_turns(
                (server, "list 1,000", plain),
                (user, "list 1,000" + ROLES, plain),
                (sender, "a server that only encrypts and sends as much", plain),
                (server, "the same for clients that accept gzip, as Go's do", packed),
            )
        rows.append(listed)
        for name in ("list 100 of 1,000 by label", "page of 500"):
            rows.append(load(server, name, requests[name], threads=READERS))
        for name in ("create", "get"):
            rows.append(load(user, name + ROLES, by_role[name]))
        rows.append(lists_by_role)
        for name in ("merge patch", "server-side apply"):
            rows.append(load(server, name, requests[name]))
        before = server.resident_mb
        fill(server, 10000, "many")
        grown = server.resident_mb - before
        fill(server, DELETED_AT_MOST, "deletes")
        rows.append(load_deletes(server, "deletes"))
    starts = sorted([took, *(cold_start() for _ in range(4))])
    report(rows, beside, took=starts[2], idle=idle, grown=grown)


def load_deletes(server: Server, namespace: str, *, there: int = DELETED_AT_MOST, seconds: float = 2) -> Row:
    """Each object can be deleted once: the load must stop before they run out, or it measures refusals."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    request = f'  return wrk.format("DELETE", "{path}/c" .. string.format("%05d", n - 1))'
    row = load(server, "delete", request, seconds=seconds)
    if row.requests >= there:
        raise SystemExit(f"delete: all {there} objects were gone before the time was up")
    return row


def cold_start() -> float:
    with started() as (_, took):
        return took


def report(rows: list[Row], beside: list[Row], *, took: float, idle: float, grown: float) -> None:
    print(f"{'':28}{'CPU ms':>8}{'peer':>8}{'cheaper':>9}{'goal':>6}{'per s':>9}{'requests':>10}")
    for row in rows:
        peer = PEER_MS[row.name]
        times = peer / row.cpu_ms
        mark = "" if times >= GOAL[row.name] else "  short of the goal"
        print(
            f"{row.name:28}{row.cpu_ms:8.3f}{peer:8.2f}{times:8.1f}x{GOAL[row.name]:5.3g}x"
            f"{row.per_second:9.0f}{row.requests:10}{mark}"
        )
        for server in beside if row.name == "list 1,000" else ():
            print(f"{'':28}{server.cpu_ms:8.3f}{peer:8.2f}{peer / server.cpu_ms:8.1f}x   {server.name}")
    print(f"{'cold start, s (of 5)':28}{took:8.2f}{3.0:8.2f}   goal under 0.7")
    print(f"{'idle memory, MB':28}{idle:8.1f}{310:8.1f}   goal under 90")
    print(f"{'10,000 objects of 1 KiB, MB':28}{grown:8.1f}{'':8}   goal under 40")


if __name__ == "__main__":
    main()
