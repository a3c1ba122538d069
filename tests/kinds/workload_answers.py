"""Recorded responses of kube-apiserver 1.36 to writes of pods and workloads, and the same writes to our strategies.

A record in answers/*.json has the sent `object`, the stored one before (`old`), the subresource (`part`: none, status,
ephemeralcontainers or resize), and the `stored` object or the `causes` of the error.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.kinds.strategies import STRATEGIES, drop_disabled

from pinnace.kinds.pods import strategy as pod_strategy
from pinnace.model.field_errors import IMMUTABLE, FieldError
from pinnace.model.objects import Object
from pinnace.model.quantity import canonical

Record = dict[str, Any]
# Set by admission or by the server, not by the kind.
OF_OTHERS = ("priority", "preemptionPolicy")
OF_THE_SERVER = ("uid", "creationTimestamp", "namespace", "generation", "managedFields", "resourceVersion")


def recorded(name: str) -> pytest.MarkDecorator:
    """Return the records of one file as the parameters of a test."""
    records = json.loads((Path(__file__).parent / "answers" / f"{name}.json").read_text())
    return pytest.mark.parametrize("record", [pytest.param(record, id=record["name"]) for record in records])


def expected_answer(record: Record) -> Record:
    if "causes" in record:
        return {"causes": _sorted(record["causes"])}
    return {"stored": record["stored"], "warnings": record.get("warnings", [])}


def answer_of(record: Record) -> Record:
    """Return the answer of our strategy, in the shape of a record's answer."""
    strategy = STRATEGIES[record["kind"]]
    new: Object = decoded(record["object"])
    old: Object | None = decoded(record["old"]) if "old" in record else None
    part = record.get("part", "")
    if old is None:
        new["metadata"]["uid"] = "U"
        new.pop("status", None)
    elif part == "status":
        new["spec"] = copy.deepcopy(old["spec"])
    elif "status" in old:
        new["status"] = copy.deepcopy(old["status"])
    strategy.default(new)
    drop_disabled(record["kind"], new, old)
    if part in ("ephemeralcontainers", "resize"):
        assert old is not None, "these parts belong to pods that exist"
        take, errors_of = _SPECIAL_PARTS[part]
        take(new, old)
        errs: Iterable[FieldError] = errors_of(new, old)
    elif part == "status":
        strategy.prepare_status(new, old)
        errs = strategy.validate_status(new, old)
    else:
        if old is None:
            new["metadata"]["creationTimestamp"] = "2026-01-02T03:04:05Z"
        strategy.prepare(new, old)
        errs = strategy.validate(new, old)
    if causes := [list(cause) for cause in errs]:
        return {"causes": _sorted(causes)}
    warnings = [] if part else list(dict.fromkeys(strategy.warnings(new, old)))
    return {"stored": comparable(new), "warnings": warnings}


_SPECIAL_PARTS: dict[str, tuple[Callable[[Any, Any], None], Callable[[Any, Any], Iterable[FieldError]]]] = {
    "ephemeralcontainers": (pod_strategy.take_ephemeral_containers, pod_strategy.validate_ephemeral_container_update),
    "resize": (pod_strategy.take_resize, pod_strategy.validate_resize),
}


def decoded(value: Any, field: str = "") -> Any:
    """Return the value as the server passes it to a strategy: without nulls, quantities in canonical form."""
    if isinstance(value, dict):
        if field in ("limits", "requests", "overhead"):
            return {key: canonical(amount) for key, amount in value.items()}
        return {key: decoded(item, key) for key, item in value.items() if item is not None}
    return [decoded(item) for item in value] if isinstance(value, list) else value


def comparable(obj: Object) -> Object:
    """Return the stored object without times and without fields that the strategy does not set."""
    stored: Object = _without_moments(decoded(obj))
    for field in OF_THE_SERVER:
        stored["metadata"].pop(field, None)
    spec = stored.get("spec", {})
    if stored.get("kind") == "Pod":
        for field in OF_OTHERS:
            spec.pop(field, None)
        ours = [
            item for item in spec.pop("tolerations", ()) if not item.get("key", "").startswith("node.kubernetes.io/")
        ]
        if ours:
            spec["tolerations"] = ours
    return stored


def _without_moments(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: "T" if key == "lastTransitionTime" else _without_moments(item) for key, item in value.items()}
    return [_without_moments(item) for item in value] if isinstance(value, list) else value


def _sorted(causes: list[list[str]]) -> list[list[str]]:
    """Kubernetes lists an error as often as it looks; an answer here has it once."""
    errs = {(field, reason, _comparable_message(field, message)) for field, reason, message in causes}
    return [list(cause) for cause in sorted(errs)]


def _comparable_message(field: str, message: str) -> str:
    """Return the message without a diff at its end and without a printed template."""
    if field.startswith("spec.template") and message.endswith(IMMUTABLE):
        return IMMUTABLE
    return message.partition("\n")[0]
