"""Measure what custom resources cost: creates, a CEL rule, 10,000 objects, and 2,000 definitions with large schemas.

    python -m bench.custom_resources [creates | rules | definitions]

Creates are measured as in bench/api.py: CPU time of the server process per request, wrk over TLS at 64 connections. The
peer's figure is kube-apiserver 1.36 with etcd 3.6 on a machine of the same kind. A rule's cost is the best of many
rounds, inside this process. Definitions are as large as those that generators write: 20 to 60 KB of schema each.
"""

from __future__ import annotations

import http.client
import json
import shutil
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from bench.api import Server, load, started

from pinnace.schema.cel.rules.rules import rules_of
from pinnace.schema.shape import Schema

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/bench.example.com/v1/namespaces/default/widgets"
PEER_CREATE_MS = 2.34
OBJECTS = 10_000
LARGE_DEFINITIONS = 2_000
MORE_DEFINITIONS = 100
SCHEMA_KB = (20, 40, 60)

TEXT = {"type": "string", "minLength": 1, "maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}
FIELDS: dict[str, tuple[dict[str, Any], Any]] = {
    **{f"name{number}": (TEXT, "a-name") for number in range(6)},
    **{f"count{number}": ({"type": "integer", "minimum": 0, "maximum": 100}, 5) for number in range(5)},
    **{f"on{number}": ({"type": "boolean"}, True) for number in range(3)},
    **{f"level{number}": ({"type": "string", "enum": ["low", "middle", "high"]}, "high") for number in range(3)},
    "share": ({"type": "number", "minimum": 0, "maximum": 1}, 0.5),
    "since": ({"type": "string", "format": "date-time"}, "2026-01-02T03:04:05Z"),
    "hosts": ({"type": "array", "maxItems": 10, "items": {"type": "string", "maxLength": 253}}, ["a.example.com"]),
}
RULES = (
    "self.spec.containers.all(c, has(c.image) && !c.image.endsWith(':latest'))",
    "!has(self.spec.hostNetwork) || !self.spec.hostNetwork",
    "self.spec.containers.all(c, c.resources.limits.all(name, name in c.resources.requests))",
    "self.metadata.name.matches('^[a-z][-a-z0-9]*$')",
    "self.spec.volumes.exists(v, v.name == 'data')",
    "size(self.spec.containers) <= 10 && self.spec.replicas >= 1",
    "self.spec.containers.map(c, c.name).all(n, n.size() < 64)",
    "quantity(self.spec.containers[0].resources.limits['memory']).isLessThan(quantity('2Gi'))",
)


def main() -> None:
    if shutil.which("wrk") is None:
        raise SystemExit("this needs wrk, a Debian package: apt-get install wrk")
    print(f"{'':44}{'reached':>10}{'goal':>10}")
    parts = {"creates": measure_creates, "rules": measure_rules, "definitions": measure_definitions}
    for part in sys.argv[1:] or parts:
        parts[part]()


def row(name: str, reached: float, goal: float) -> None:
    print(f"{name:44}{reached:10.3f}{goal:10.3f}{'' if reached <= goal else '  short of the goal'}", flush=True)


# One kind with 20 fields.


def measure_creates() -> None:
    with started() as (server, _):
        connection = Connection(server)
        connection.post(DEFINITIONS, widgets())
        row("create, 20 fields, CPU ms", best_create(server), PEER_CREATE_MS / 10)
    with started() as (server, _):
        connection = Connection(server)
        connection.post(DEFINITIONS, widgets())
        connection.post(WIDGETS, widget("first"))  # Compiles what the first object of a kind compiles.
        before = server.resident_mb
        filler = "x" * (1024 - len(json.dumps(widget("w0000", filler="-"))))
        for number in range(OBJECTS):
            connection.post(WIDGETS, widget(f"w{number}", filler=filler))
        row("10,000 objects of 1 KiB, MB", server.resident_mb - before, 40)


def best_create(server: Server) -> float:
    """The least of three loads: what else the machine does can only add to it."""
    create = (
        "  local body = string.format("
        f"'{json.dumps(widget('b%d-%d'))}', os.time(), n)\n"
        f'  return wrk.format("POST", "{WIDGETS}", {{["Content-Type"]="application/json",'
        '["Authorization"]="Bearer " .. token, ["User-Agent"]="wrk"}, body)'
    )
    return min(
        load(server, f"create {attempt}", create.replace("os.time()", f"os.time() + {attempt * 1000}")).cpu_ms
        for attempt in range(3)
    )


def widgets() -> dict[str, Any]:
    spec = {
        "type": "object",
        "required": ["name0", "count0"],
        "properties": {name: schema for name, (schema, _) in FIELDS.items()},
    }
    schema = {"type": "object", "properties": {"spec": spec, "filler": {"type": "string"}}}
    return definition("widgets", "Widget", "bench.example.com", schema)


def widget(name: str, *, filler: str = "") -> dict[str, Any]:
    return {
        "apiVersion": "bench.example.com/v1",
        "kind": "Widget",
        "metadata": {"name": name},
        "spec": {name: value for name, (_, value) in FIELDS.items()},
        **({"filler": filler} if filler else {}),
    }


# Rules.


def measure_rules() -> None:
    rounds = []
    for rule in RULES:
        rules = rules_of(Schema(podlike_schema(rule)), is_root=True)
        assert rules is not None
        pod = podlike()
        assert rules.errs(pod) == []
        rounds.append(best_us(partial(rules.errs, pod)))
    row("a CEL rule on a Pod-sized object, us, mean", statistics.mean(rounds), 10)
    row("a CEL rule on a Pod-sized object, us, worst", max(rounds), 10)


def best_us(call: Callable[[], Any], *, rounds: int = 50, calls: int = 200) -> float:
    least = float("inf")
    for _ in range(rounds):
        begun = time.perf_counter()
        for _ in range(calls):
            call()
        least = min(least, time.perf_counter() - begun)
    return least / calls * 1e6


def podlike() -> dict[str, Any]:
    """About 3 KB, with what the pods of a usual deployment say."""
    container = {
        "image": "registry.example.com/team/service:1.2.3",
        "args": ["--listen=:8080", "--verbose"],
        "env": [{"name": f"VARIABLE_{number}", "value": "a value of some length"} for number in range(12)],
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "config", "mountPath": "/etc/service"}],
    }
    return {
        "apiVersion": "bench.example.com/v1",
        "kind": "Podlike",
        "metadata": {"name": "service", "namespace": "default", "labels": {"app": "service", "tier": "front"}},
        "spec": {
            "replicas": 3,
            "containers": [{"name": name, **container} for name in ("main", "proxy", "logs")],
            "volumes": [{"name": "data"}, {"name": "config"}],
            "nodeSelector": {"kubernetes.io/os": "linux"},
        },
    }


def podlike_schema(rule: str) -> dict[str, Any]:
    name = {"type": "string", "maxLength": 63}
    amounts = {"type": "object", "maxProperties": 10, "additionalProperties": {"type": "string", "maxLength": 20}}
    container = fields(
        name=name,
        image={"type": "string", "maxLength": 500},
        args=listed({"type": "string", "maxLength": 200}),
        env=listed(fields(name=name, value={"type": "string", "maxLength": 1000})),
        ports=listed(fields(name=name, containerPort={"type": "integer"}, protocol=name)),
        resources=fields(limits=amounts, requests=amounts),
        volumeMounts=listed(fields(name=name, mountPath={"type": "string"})),
    )
    spec = fields(
        replicas={"type": "integer"},
        hostNetwork={"type": "boolean"},
        containers=listed(container),
        volumes=listed(fields(name=name)),
        nodeSelector={"type": "object", "additionalProperties": {"type": "string"}},
    )
    return {**fields(spec=spec), "x-kubernetes-validations": [{"rule": rule}]}


def fields(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def listed(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "maxItems": 20, "items": items}


# Many definitions.


def measure_definitions() -> None:
    with tempfile.TemporaryDirectory() as directory:
        with started(Path(directory)) as (server, _):
            connection = Connection(server)
            for body in large_definitions(LARGE_DEFINITIONS):
                connection.post(DEFINITIONS, body)
            before = server.cpu_seconds
            for body in large_definitions(LARGE_DEFINITIONS + MORE_DEFINITIONS, start=LARGE_DEFINITIONS):
                connection.post(DEFINITIONS, body)
            spent = (server.cpu_seconds - before) * 1000 / MORE_DEFINITIONS
            row("2,000 definitions: the next one, CPU ms", spent, 20)
            row("2,000 definitions: memory, MB", server.resident_mb, 300)
        took = []
        for _ in range(3):
            with started(Path(directory)) as (server, seconds):
                took.append(seconds)
                Connection(server).get("/apis/group1.example.com/v1/things1")
                grown = server.resident_mb
        row("2,000 definitions: start, s", min(took), 3)
        row("2,000 definitions: memory after a start, MB", grown, 300)


def large_definitions(end: int, *, start: int = 0) -> Iterator[dict[str, Any]]:
    schemas = [large_schema(size * 1000) for size in SCHEMA_KB]
    for number in range(start, end):
        schema = schemas[number % len(schemas)]
        yield definition(f"things{number}", f"Thing{number}", f"group{number % 50}.example.com", schema)


def large_schema(size: int) -> dict[str, Any]:
    part = fields(
        name={"type": "string", "maxLength": 63, "description": "The name of the thing that is meant here."},
        replicas={"type": "integer", "minimum": 0, "default": 1, "description": "How many there are to be."},
        labels={"type": "object", "additionalProperties": {"type": "string"}},
        terms=listed(fields(key={"type": "string"}, operator={"type": "string", "enum": ["In", "NotIn"]})),
    )
    properties: dict[str, Any] = {}
    while len(json.dumps(properties)) < size:
        described = {"description": f"Field {len(properties)}, described at some length, as generators do.", **part}
        properties[f"field{len(properties)}"] = described
    return fields(spec=fields(**properties), status=fields(replicas={"type": "integer"}))


def definition(plural: str, kind: str, group: str, schema: dict[str, Any]) -> dict[str, Any]:
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": [{**version, "subresources": {"status": {}}}],
        },
    }


class Connection:
    """One connection that is kept, so that what is timed is the request."""

    def __init__(self, server: Server) -> None:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self._connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=context)
        self._headers = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}

    def post(self, path: str, body: dict[str, Any]) -> None:
        self._ask("POST", path, json.dumps(body))

    def get(self, path: str) -> None:
        self._ask("GET", path, None)

    def _ask(self, method: str, path: str, body: str | None) -> None:
        self._connection.request(method, path, body, self._headers)
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status >= 300:
            raise SystemExit(f"{method} {path} was refused: {content[:500].decode()}")


if __name__ == "__main__":
    main()
