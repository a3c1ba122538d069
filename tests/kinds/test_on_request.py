"""Kinds that are served on request answer as a kube-apiserver 1.37 does, request by request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.server.in_process import InProcess, control_plane

from pinnace.cluster.settings import Settings

ANSWERS = Path(__file__).with_name("on_request_1_37.jsonl")
GATES = "EvictionRequestAPI=true,DRAResourcePoolStatus=true"
CONFIG = "lifecycle.k8s.io/v1alpha1=true,resource.k8s.io/v1alpha3=true"
_OWN = ("uid", "resourceVersion", "creationTimestamp", "managedFields")


def without_own(value: Any) -> Any:
    """Leave out the fields that differ in each cluster."""
    if isinstance(value, dict):
        return {key: without_own(item) for key, item in value.items() if key not in _OWN}
    return [without_own(item) for item in value] if isinstance(value, list) else value


async def answer_of(api: InProcess, request: list[Any]) -> tuple[int, Any]:
    method, path, body, content_type = request
    reply = await api.call(method, path, body, content_type)
    return reply.status, without_own(reply.json)


async def test_the_answers_are_those_of_kubernetes() -> None:
    rows = [json.loads(line) for line in ANSWERS.read_text().splitlines()]
    async with control_plane(settings=Settings(feature_gates=GATES, runtime_config=CONFIG)) as api:
        for row in rows:
            assert await answer_of(api, row["request"]) == (row["status"], row["answer"]), row["name"]


async def test_a_kind_needs_its_gate_as_well_as_its_version() -> None:
    path = "/apis/lifecycle.k8s.io/v1alpha1/namespaces/default/evictionrequests"
    for gates, config, status in (("", CONFIG, 404), (GATES, "", 404), (GATES, CONFIG, 200)):
        async with control_plane(settings=Settings(feature_gates=gates, runtime_config=config)) as api:
            assert (await api.get(path)).status == status
