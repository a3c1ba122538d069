"""Recorded responses of kube-apiserver 1.36 to writes (recorded/*.jsonl), and the same writes to our strategies."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import orjson
from tests.kinds.strategies import STRATEGIES, drop_disabled

from pinnace.model import names
from pinnace.model.metadata import validate_metadata, validate_metadata_update
from pinnace.model.objects import Object

Write = dict[str, Any]
"""name, kind, namespaced, new; old for an update, status for one of /status; and the response: object or causes, and
warnings."""

_PER_WRITE = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "deletionTimestamp")


def recorded(name: str) -> list[Write]:
    lines = (Path(__file__).parent / "recorded" / f"{name}.jsonl").read_bytes().splitlines()
    return [orjson.loads(line) for line in lines]


def answer_here(write: Write) -> dict[str, Any]:
    """Return the answer of the kind's strategy, called in the order of the pipeline."""
    strategy = STRATEGIES[write["kind"]]
    new, old = copy.deepcopy(write["new"]), copy.deepcopy(write.get("old"))
    if old is not None:
        kept = {field: old["metadata"][field] for field in _PER_WRITE if field in old["metadata"]}
        new["metadata"] = {**new["metadata"], **kept}
    else:
        new["metadata"]["creationTimestamp"] = "2026-01-02T03:04:05Z"
    if write.get("status"):
        new = {**copy.deepcopy(write["old"]), "status": new["status"]}
    strategy.default(new)
    once = copy.deepcopy(new)
    strategy.default(new)
    assert new == once, "defaulting twice must be defaulting once"
    drop_disabled(write["kind"], new, old)
    (strategy.prepare_status if write.get("status") else strategy.prepare)(new, old)
    name_rule = strategy.name_rule if old is None else names.path_segment
    errs = list(validate_metadata(new, namespaced=write["namespaced"], name_rule=name_rule))
    errs += () if old is None else validate_metadata_update(new, old)
    errs += (strategy.validate_status if write.get("status") else strategy.validate)(new, old)
    if errs:
        return {"causes": sorted({tuple(err) for err in errs})}
    warnings = [] if write.get("status") else sorted(strategy.warnings(new, old))
    return {"object": _comparable(new), "warnings": warnings}


def answer_recorded(write: Write) -> dict[str, Any]:
    if "causes" in write:
        return {"causes": sorted({tuple(cause) for cause in write["causes"]})}
    return {"object": write["object"], "warnings": sorted(write.get("warnings", ()))}


def _comparable(obj: Object) -> Object:
    """Return the object without fields that differ from write to write, and without allocated addresses and ports."""
    obj = {field: value for field, value in obj.items() if field not in ("apiVersion", "kind")}
    obj["metadata"] = {field: value for field, value in obj["metadata"].items() if field not in _PER_WRITE}
    spec = obj.get("spec")
    if isinstance(spec, dict):
        for field in ("clusterIP", "clusterIPs"):
            if spec.get(field) not in ("None", ["None"]):
                spec.pop(field, None)
        spec.pop("healthCheckNodePort", None)
        for port in spec.get("ports") or ():
            port.pop("nodePort", None)
    return obj
