"""Compare our server and a real one, on the same machine, in turns: CPU time for the same requests.

    python -m bench.beside --port 6443 --token TOKEN --pid APISERVER --pid ETCD

Figures of different machines and hours compare badly; these are of one machine and one hour, and only their ratio is to
be believed. The real server (not started here) must know the token as that of an administrator.
"""

from __future__ import annotations

import argparse
import statistics
import time

from bench.api import GOAL, READERS, Row, Server, call, fill, load, load_deletes, requests_in, started

TURNS = 5
SECONDS = 2
DELETED = 12_000


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--port", type=int, required=True, help="where the real server listens on loopback")
    options.add_argument("--token", required=True, help="a bearer token of an administrator")
    options.add_argument("--pid", type=int, action="append", required=True, help="each process that counts")
    given = options.parse_args()
    peer = Server(tuple(given.pid), given.port, given.token)
    mark = f"-{int(time.time())}"
    print(f"{'':28}{'theirs':>9}{'ours':>9}{'cheaper':>9}{'goal':>6}   CPU ms, medians of {TURNS} turns")
    with started() as (ours, _):
        for server in (peer, ours):
            prepare(server, mark)
        for name, request in requests_in(f"thousand{mark}", f"patches{mark}", names=f"b{mark}-").items():
            threads = READERS if "list" in name or "page" in name else 1
            tell(
                name,
                [
                    [load(server, name, request, seconds=SECONDS, threads=threads) for server in (peer, ours)]
                    for _ in range(TURNS)
                ],
            )
        tell("delete", [[load_deletes(server, f"deletes{mark}", there=DELETED, seconds=1) for server in (peer, ours)]])


def prepare(server: Server, mark: str) -> None:
    for namespace in ("thousand", "patches", "deletes"):
        call(server, "POST", "/api/v1/namespaces", {"metadata": {"name": namespace + mark}})
    fill(server, 1000, f"thousand{mark}")
    fill(server, DELETED, f"deletes{mark}")


def tell(name: str, turns: list[list[Row]]) -> None:
    theirs, ours = (statistics.median(row.cpu_ms for row in side) for side in zip(*turns, strict=True))
    mark = "" if theirs / ours >= GOAL[name] else "  short of the goal"
    print(f"{name:28}{theirs:9.3f}{ours:9.3f}{theirs / ours:8.1f}x{GOAL[name]:5.3g}x{mark}", flush=True)


if __name__ == "__main__":
    main()
