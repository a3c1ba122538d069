"""Answer AdmissionReviews and ConversionReviews by calling the operator's handlers."""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import orjson
from pydantic import ValidationError

from pinnace.client.typed import typed, wire_of
from pinnace.model.objects import Object
from pinnace.sdk.handlers.calls import call
from pinnace.sdk.handlers.handlers import AdmissionHandler, ConversionHandler
from pinnace.sdk.handlers.validation_messages import validation_message

DENIED_CODE = 403


class Refused(Exception):
    """Raise it in a validating or mutating handler to deny the write with this message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The write that an admission handler decides on."""

    operation: str
    """CREATE, UPDATE or DELETE."""
    name: str
    namespace: str
    user: str
    groups: tuple[str, ...]
    old: Any
    """The stored object, typed as the new one is; None for a create."""
    dry_run: bool
    warnings: list[str] = field(default_factory=list)

    def warn(self, message: str) -> None:
        """Send the client a warning. The write is still allowed."""
        self.warnings.append(message)


async def review_admission(handler: AdmissionHandler, review: Object) -> Object:
    """Return the AdmissionReview that answers one."""
    request = review["request"]
    response: Object = {"uid": request["uid"], "allowed": True}
    try:
        await _admit(handler, request, response)
    except (Refused, ValidationError) as denied:
        response |= {"allowed": False, "status": {"code": DENIED_CODE, "message": validation_message(denied)}}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


async def _admit(handler: AdmissionHandler, request: Object, response: Object) -> None:
    user = request.get("userInfo") or {}
    old = request.get("oldObject")
    admission = Admission(
        operation=request["operation"],
        name=request.get("name", ""),
        namespace=request.get("namespace", ""),
        user=user.get("username", ""),
        groups=tuple(user.get("groups") or ()),
        old=typed(handler.kind, old) if old else None,
        dry_run=bool(request.get("dryRun")),
    )
    obj: Object = request.get("object") or old or {}
    given = typed(handler.kind, deepcopy(obj))
    result = await call(handler.handler, given, admission)
    if admission.warnings:
        response["warnings"] = admission.warnings
    if not handler.mutates:
        _check_verdict(handler, result)
        return
    changed = wire_of(given if result is None else result)
    before = wire_of(typed(handler.kind, deepcopy(obj)))
    patch = differences(before, changed, obj)
    if patch:
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(orjson.dumps(patch)).decode()}


def _check_verdict(handler: AdmissionHandler, result: Any) -> None:
    """Raise Refused with the message that a validating function returned, if any."""
    if isinstance(result, bool):
        raise TypeError(
            f"{handler.path} returned {result}: return None to admit the object, or a text that says why it is denied"
        )
    if result:
        raise Refused(str(result))


def differences(before: Any, after: Any, present: Any, path: str = "") -> list[Object]:
    """Return the JSON patch from `before` to `after`, for `present`, which may have more or fewer fields.

    Defaults that the class added while it read the object are no difference.
    """
    if before == after:
        return []
    if not (isinstance(before, dict) and isinstance(after, dict) and isinstance(present, dict)):
        return [{"op": "add" if path else "replace", "path": path, "value": after}]
    patch: list[Object] = []
    for name in before.keys() - after.keys():
        if name in present:
            patch.append({"op": "remove", "path": f"{path}/{_escape(name)}"})
    for name, value in after.items():
        where = f"{path}/{_escape(name)}"
        if name in before and name in present:
            patch += differences(before[name], value, present[name], where)
        elif before.get(name) != value:
            patch.append({"op": "add", "path": where, "value": value})
    return patch


async def review_conversion(conversions: Sequence[ConversionHandler], review: Object) -> Object:
    """Return the ConversionReview that answers one: all objects in the desired version, or the error of one of them."""
    request = review["request"]
    response: Object = {"uid": request["uid"], "convertedObjects": [], "result": {"status": "Success"}}
    try:
        for obj in request["objects"]:
            response["convertedObjects"].append(await _convert(conversions, obj, request["desiredAPIVersion"]))
    except Exception as error:  # Every error goes into the answer: only the server is waiting for it.
        failure = f"{type(error).__name__}: {error}"
        response |= {"convertedObjects": [], "result": {"status": "Failure", "message": failure}}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response}


async def _convert(conversions: Sequence[ConversionHandler], obj: Object, wanted: str) -> Object:
    for step in find_steps(conversions, obj, wanted):
        answer = await call(step.handler, step.old.of(obj))
        converted = answer.to_wire() if hasattr(answer, "to_wire") else dict(answer)
        # A conversion may change no metadata but labels and annotations: the server rejects everything else.
        metadata = dict(obj["metadata"])
        returned = converted.get("metadata") or {}
        metadata |= {name: returned[name] for name in ("labels", "annotations") if returned.get(name)}
        obj = {**converted, "apiVersion": step.new.declared.kind.api_version, "kind": obj["kind"], "metadata": metadata}
    return obj


def find_steps(conversions: Sequence[ConversionHandler], obj: Object, wanted: str) -> list[ConversionHandler]:
    """Return the shortest sequence of conversions from an object's version to `wanted`. Raise LookupError."""
    start = (obj["apiVersion"], obj["kind"])
    paths: deque[tuple[tuple[str, str], list[ConversionHandler]]] = deque([(start, [])])
    seen = {start}
    while paths:
        place, path = paths.popleft()
        if place == (wanted, obj["kind"]):
            return path
        for conversion in conversions:
            old, new = conversion.old.declared.kind, conversion.new.declared.kind
            arrival = (new.api_version, new.name)
            if (old.api_version, old.name) == place and arrival not in seen:
                seen.add(arrival)
                paths.append((arrival, [*path, conversion]))
    raise LookupError(f"no function converts {obj['kind']} from {obj['apiVersion']} to {wanted}")


def _escape(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
