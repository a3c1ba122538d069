"""Bodies as Go clients write them, with the objects that they mean."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, NamedTuple

BODIES = Path(__file__).with_name("protobuf_bodies.jsonl")


class Sample(NamedTuple):
    name: str
    body: bytes
    obj: dict[str, Any]


def samples() -> list[Sample]:
    rows = (json.loads(line) for line in BODIES.read_text().splitlines())
    return [Sample(row["name"], base64.b64decode(row["body"]), row["object"]) for row in rows]


def sample(name: str) -> Sample:
    return next(result for result in samples() if result.name == name)
