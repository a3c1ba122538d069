"""The Status objects that answer successful writes which have no object to show."""

from __future__ import annotations

import orjson

from pinnace.model.objects import Object
from pinnace.serving.request.call import Call


def created_status() -> bytes:
    return orjson.dumps({**_success(), "code": 201})


def deleted_status(call: Call, uid: str) -> bytes:
    details = {"name": call.name, "group": call.resource.group, "kind": call.resource.plural, "uid": uid}
    kept = {name: value for name, value in details.items() if value}
    return orjson.dumps({**_success(), "details": kept})


def _success() -> Object:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
