"""Answers the server's questions: may this object be stored, and how does it look in another version?"""

from __future__ import annotations

import base64
from collections import deque
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson
from pydantic import ValidationError

from pinnace.client.typed import typed, wire_of
from pinnace.model.objects import Object
from pinnace.sdk.operator.calls import called
from pinnace.sdk.operator.declarations import Conversion, Gate

if TYPE_CHECKING:
    from pinnace.sdk.operator.operator import Operator

REFUSED = 403


class Refused(Exception):
    """Raised by a validating or mutating function: the write is refused, with this message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The write that a function is asked about."""

    operation: str
    """CREATE, UPDATE or DELETE."""
    name: str
    namespace: str
    user: str
    groups: tuple[str, ...]
    old: Any
    """The object as it is stored, in the form in which the new one is given; None if there is none."""
    dry_run: bool
    warnings: list[str] = field(default_factory=list)

    def warn(self, message: str) -> None:
        """Tell the user, who may write nevertheless."""
        self.warnings.append(message)


async def review_admission(gate: Gate, review: Object) -> Object:
    """The AdmissionReview that answers one."""
    request = review["request"]
    response: Object = {"uid": request["uid"], "allowed": True}
    try:
        await _ask(gate, request, response)
    except (Refused, ValidationError) as refusal:
        response |= {"allowed": False, "status": {"code": REFUSED, "message": str(refusal)}}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


async def _ask(gate: Gate, request: Object, response: Object) -> None:
    user = request.get("userInfo") or {}
    old = request.get("oldObject")
    admission = Admission(
        operation=request["operation"],
        name=request.get("name", ""),
        namespace=request.get("namespace", ""),
        user=user.get("username", ""),
        groups=tuple(user.get("groups") or ()),
        old=typed(gate.kind, old) if old else None,
        dry_run=bool(request.get("dryRun")),
    )
    obj: Object = request.get("object") or old or {}
    given = typed(gate.kind, deepcopy(obj))
    result = await called(gate.handler, given, admission)
    if admission.warnings:
        response["warnings"] = admission.warnings
    if not gate.changes:
        if result:
            raise Refused(str(result))
        return
    changed = wire_of(given if result is None else result)
    before = wire_of(typed(gate.kind, deepcopy(obj)))
    patch = differences(before, changed, obj)
    if patch:
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(orjson.dumps(patch)).decode()}


def differences(before: Any, after: Any, present: Any, path: str = "") -> list[Object]:
    """The JSON patch that brings `before` to `after`, to be applied to `present`, which may have more or fewer fields.

    What only a class added by reading the object, as defaults, is no difference.
    """
    if before == after:
        return []
    if not (isinstance(before, dict) and isinstance(after, dict) and isinstance(present, dict)):
        return [{"op": "add" if path else "replace", "path": path, "value": after}]
    patch: list[Object] = []
    for name in before.keys() - after.keys():
        if name in present:
            patch.append({"op": "remove", "path": f"{path}/{_escaped(name)}"})
    for name, value in after.items():
        where = f"{path}/{_escaped(name)}"
        if name in before and name in present:
            patch += differences(before[name], value, present[name], where)
        elif before.get(name) != value:
            patch.append({"op": "add", "path": where, "value": value})
    return patch


async def review_conversion(operator: Operator, review: Object) -> Object:
    """The ConversionReview that answers one: all objects in the wanted version, or why one of them cannot be."""
    request = review["request"]
    response: Object = {"uid": request["uid"], "convertedObjects": [], "result": {"status": "Success"}}
    try:
        for obj in request["objects"]:
            response["convertedObjects"].append(await _converted(operator, obj, request["desiredAPIVersion"]))
    except Exception as error:  # Whatever it is, the server must hear of it: nobody else is waiting.
        failure = f"{type(error).__name__}: {error}"
        response |= {"convertedObjects": [], "result": {"status": "Failure", "message": failure}}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response}


async def _converted(operator: Operator, obj: Object, wanted: str) -> Object:
    for step in steps(operator.declared.conversions, obj, wanted):
        answer = await called(step.handler, step.old.of(obj))
        converted = answer.to_wire() if hasattr(answer, "to_wire") else dict(answer)
        # A conversion must not touch metadata, labels and annotations aside: the server refuses it.
        metadata = dict(obj["metadata"])
        said = converted.get("metadata") or {}
        metadata |= {name: said[name] for name in ("labels", "annotations") if said.get(name)}
        obj = {**converted, "apiVersion": step.new.declared.kind.api_version, "kind": obj["kind"], "metadata": metadata}
    return obj


def steps(conversions: list[Conversion], obj: Object, wanted: str) -> list[Conversion]:
    """The shortest way from an object's version to another. Raises LookupError if there is none."""
    start = (obj["apiVersion"], obj["kind"])
    ways: deque[tuple[tuple[str, str], list[Conversion]]] = deque([(start, [])])
    seen = {start}
    while ways:
        place, way = ways.popleft()
        if place == (wanted, obj["kind"]):
            return way
        for one in conversions:
            old, new = one.old.declared.kind, one.new.declared.kind
            arrival = (new.api_version, new.name)
            if (old.api_version, old.name) == place and arrival not in seen:
                seen.add(arrival)
                ways.append((arrival, [*way, one]))
    raise LookupError(f"no function converts {obj['kind']} from {obj['apiVersion']} to {wanted}")


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
