"""Hostile clients of one server, each a process of its own: python -m tests.hostile.attackers NAME PORT TOKEN SECONDS

They send what any authenticated user may send, one request after the other, and print the answers by status.
The same requests in an ordinary size are those of a client that means no harm.
"""

from __future__ import annotations

import http.client
import json
import random
import socket
import ssl
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
MANY = "/api/v1/namespaces/many/configmaps"
QUOTAS = "/api/v1/namespaces/default/resourcequotas?dryRun=All"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
TLS = ssl.create_default_context()
TLS.check_hostname, TLS.verify_mode = False, ssl.CERT_NONE
SLOW_READERS = 40
LARGE, ORDINARY = 1000, 1
"""The sizes of requests."""
http.client._MAXHEADERS = 1000  # type: ignore[attr-defined] # Each unknown field may have a warning.

Ask = tuple[str, str, Any, dict[str, str]]
"""The method, target, body and headers of a request."""


def get(target: str, accept: str = "application/json", **headers: str) -> Ask:
    return "GET", target, None, {"accept": accept, **headers}


def post(target: str, body: Any) -> Ask:
    return "POST", target, body, {"content-type": "application/json"}


def page(size: int) -> str:
    """Return the limit of a list: all objects, or as many as kubectl reads at once."""
    return "limit=0" if size == LARGE else "limit=500"


def selectors(size: int) -> Iterator[Ask]:
    target = f"{MANY}?{page(size)}"
    yield get(f"{target}&labelSelector=" + ",".join(f"l{n}!=x" for n in range(30 * size)))
    yield get(f"{target}&labelSelector=a+notin+(" + ",".join(f"v{n}" for n in range(40 * size)) + ")")
    yield get(f"{target}&fieldSelector=" + ",".join(f"metadata.name!=x{n}" for n in range(20 * size)))


def tables(size: int) -> Iterator[Ask]:
    yield get(f"{MANY}?{page(size)}", TABLE)
    yield get(f"{MANY}?includeObject=Object&{page(size)}", TABLE)
    yield get(f"/api/v1/configmaps?labelSelector=odd!=x&{page(size)}", TABLE)


def numbers(size: int) -> Iterator[Ask]:
    for digits in ("0" * 500 * size + "x", "1" * 500 * size, "9" * 5 * size + "e-99"):
        yield post(QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"cpu": digits}}})


def unknown_fields(size: int) -> Iterator[Ask]:
    fields = {f"k{n}": n for n in range(60 * size)}
    yield post(REVIEWS, {"spec": {}, **fields})
    yield post(f"{CONFIG_MAPS}?dryRun=All", {"metadata": {"name": "u"}, **fields})


def owner_references(size: int) -> Iterator[Ask]:
    owner = {"apiVersion": "v1", "kind": "ConfigMap"}
    owners = [{**owner, "name": f"o{n}", "uid": f"uid-{n}"} for n in range(20 * size)]
    yield post(CONFIG_MAPS, {"metadata": {"name": "owned", "ownerReferences": owners}})
    yield post(f"{CONFIG_MAPS}?dryRun=All", {"metadata": {"name": "other", "ownerReferences": owners}})
    finalizers = [f"example.com/f{n}" for n in range(100 * size)]
    yield post(f"{CONFIG_MAPS}?dryRun=All", {"metadata": {"name": "f", "finalizers": finalizers}})


def definitions(size: int) -> Iterator[Ask]:
    names = {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}
    text = {"type": "string", "maxLength": 9}
    shapes: list[dict[str, Any]] = [
        {f"p{n}": {"type": "string"} for n in range(8 * size)},
        {f"p{n}": {"type": "string", "pattern": f"^(a|b{n})*$"} for n in range(2 * size)},
        {"p": {**text, "x-kubernetes-validations": [{"rule": " && ".join(["self != 'x'"] * size)}]}},
        {"p": {"type": "string", "pattern": "(a|b)*" * 20 * size}},
    ]
    for shape in shapes:
        schema = {"openAPIV3Schema": {"type": "object", "properties": shape}}
        version = {"name": "v1", "served": True, "storage": True, "schema": schema}
        spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
        yield post(DEFINITIONS, {"metadata": {"name": "things.example.com"}, "spec": spec})


def formats(size: int) -> Iterator[Ask]:
    yield get(f"{MANY}?{page(size)}", "application/yaml")
    yield get(f"{MANY}?pretty=true&{page(size)}")
    limit = random.randrange(10_000, 99_999) if size == LARGE else 500
    yield get(f"{MANY}?limit={limit}", **{"accept-encoding": "gzip"})


def watches() -> Iterator[Ask]:
    for accept in ("application/json", TABLE):
        yield get(f"{MANY}?watch=1&timeoutSeconds=1", accept)


def ordinary_requests() -> Iterator[Ask]:
    """Yield requests of every kind that an attack sends, in an ordinary size."""
    for kind in (selectors, tables, numbers, unknown_fields, owner_references, definitions, formats):
        yield from kind(ORDINARY)
    yield from watches()


def requests(asks: Callable[[int], Iterator[Ask]]) -> Callable[[int, str, float], Counter[str]]:
    """Return an attack that sends these requests again and again."""

    def attack(port: int, token: str, seconds: float) -> Counter[str]:
        seen: Counter[str] = Counter()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for method, target, body, headers in asks(LARGE):
                connection = http.client.HTTPSConnection("127.0.0.1", port, context=TLS, timeout=60)
                with suppress(OSError, http.client.HTTPException):
                    raw = json.dumps(body).encode() if body is not None else None
                    connection.request(method, target, raw, {"authorization": f"Bearer {token}", **headers})
                    answer = connection.getresponse()
                    while answer.read(1 << 20):
                        pass
                    seen[f"{answer.status // 100}xx"] += 1
                connection.close()
                if time.monotonic() >= end:
                    break
        return seen

    return attack


def slow_readers(port: int, token: str, seconds: float) -> Counter[str]:
    """Ask for lists and watches on many connections, and read next to nothing."""
    end = time.monotonic() + seconds
    accepts = ("application/json", TABLE, "application/yaml")
    open_: list[ssl.SSLSocket] = []
    for number in range(SLOW_READERS):
        target = (MANY, f"{MANY}?limit={9_000 + number}", f"{MANY}?watch=1", f"{MANY}?pretty=1")[number % 4]
        accept = accepts[number % 3] if "watch" not in target else accepts[number % 2]
        raw = socket.create_connection(("127.0.0.1", port), timeout=60)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection = TLS.wrap_socket(raw)
        head = f"GET {target} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nAccept: {accept}\r\n\r\n"
        connection.sendall(head.encode())
        open_.append(connection)
    while time.monotonic() < end:
        for connection in open_:
            with suppress(OSError):
                connection.recv(10)
        time.sleep(0.5)
    for connection in open_:
        connection.close()
    return Counter({"slow": len(open_)})


def malformed_http(port: int, token: str, seconds: float) -> Counter[str]:
    """Send requests with wrong lines, headers, lengths and chunks."""
    rng, seen, end = random.Random(1), Counter[str](), time.monotonic() + seconds
    heads = [b"GET * HTTP/1.1\r\nHost: x\r\n\r\n", b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00"]
    heads += [b"POST /api HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\0" * 9000]
    heads += [b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n"]
    chunked = b"POST /api HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    heads += [chunked + b"zz\r\n", chunked + b"ffffffffffffffff\r\n"]
    while time.monotonic() < end:
        with suppress(OSError):
            connection = TLS.wrap_socket(socket.create_connection(("127.0.0.1", port), timeout=5))
            data = rng.choice(heads)
            connection.sendall(
                data if rng.random() < 0.7 else bytes(rng.choice(data) for _ in range(300)) + b"\r\n\r\n"
            )
            connection.settimeout(0.2)
            first = connection.recv(100)
            seen[first[9:10].decode("latin-1") + "xx"] += 1
            connection.close()
    return seen


ATTACKS: dict[str, Callable[[int, str, float], Counter[str]]] = {
    "selectors": requests(selectors),
    "tables": requests(tables),
    "numbers": requests(numbers),
    "unknown-fields": requests(unknown_fields),
    "owner-references": requests(owner_references),
    "definitions": requests(definitions),
    "formats": requests(formats),
    "slow-readers": slow_readers,
    "malformed-http": malformed_http,
}


def main(name: str, port: str, token: str, seconds: str) -> None:
    print(json.dumps(ATTACKS[name](int(port), token, float(seconds))))


if __name__ == "__main__":
    main(*sys.argv[1:])
