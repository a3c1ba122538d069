"""Malformed requests get the answers of the real server: code, reason, message, details.

`refusals_1_36.jsonl` holds the objects to create first, then requests and the Status with which Kubernetes 1.36
answered: random paths, options, selectors, bodies and patches, sent to both servers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.server.in_process import InProcess, control_plane

LINES = [json.loads(line) for line in Path(__file__).with_name("refusals_1_36.jsonl").read_text().splitlines()]


async def answer(api: InProcess, request: dict[str, Any]) -> Any:
    """Send a request; return the Status, or the text of another answer."""
    body = request["body"].encode() if request["body"] is not None else None
    headers = {name.lower(): value for name, value in request["headers"].items()}
    content_type = headers.pop("content-type", "application/json")
    reply = await api.call(request["method"], request["target"], body, content_type, **headers)
    return reply.json if reply.body.startswith(b"{") else reply.body.decode()


async def test_malformed_requests_are_refused_as_the_real_server_refuses_them() -> None:
    wrong = []
    async with control_plane() as api:
        for line in LINES:
            if "create" in line:
                await api.made(line["create"], line["object"])
            elif (result := await answer(api, line)) != line["answer"]:
                wrong.append((line["method"], line["target"], line["body"], line["answer"], result))
    assert wrong == []
