"""Recorded responses of kube-apiserver to writes (answers/*.json), and the same writes through our strategies.

A record has the sent object, the stored one before (`old`), and either the `stored` object or the `causes` of the
error. Metadata is left out: the server handles it, not the kind.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from tests.kinds.strategies import STRATEGIES, drop_disabled

from pinnace.model.field_errors import FieldError
from pinnace.model.objects import Object

Record = dict[str, Any]
OF_THE_SERVER = ("metadata.name", "metadata.labels", "metadata.resourceVersion")
NAMED_BY_CONTENT = ("APIService", "CustomResourceDefinition", "ClusterTrustBundle")
MOMENTS = ("lastPhaseTransitionTime", "lastTransitionTime", "lastUpdateTime", "timeAdded")


def recorded(*files: str) -> pytest.MarkDecorator:
    """Return the records of files as the parameters of a test."""
    answers = Path(__file__).parent / "answers"
    records = [(name, record) for name in files for record in json.loads((answers / f"{name}.json").read_text())]
    return pytest.mark.parametrize(
        "record", [pytest.param(record, id=f"{name}: {record['name']}") for name, record in records]
    )


def answer_of(record: Record) -> Record:
    """Return the answer of our strategy, in the shape of a record's answer."""
    strategy = STRATEGIES[record["kind"]]
    new, old = _without_nulls(record["object"]), _without_nulls(record.get("old"))
    subresource = record.get("sub", "")
    if bool(subresource) and old is not None:
        new["spec"] = copy.deepcopy(old["spec"])
    elif old is not None and "status" in old:
        new["status"] = copy.deepcopy(old["status"])
    elif old is None:
        new.pop("status", None)
    strategy.default(new)
    prepare, validate = (
        (strategy.prepare_subresource[subresource], strategy.validate_subresource[subresource])
        if subresource in strategy.prepare_subresource
        else (strategy.prepare_status, strategy.validate_status)
        if subresource
        else (strategy.prepare, strategy.validate)
    )
    drop_disabled(record["kind"], new, old)
    if old is None:
        new["metadata"]["creationTimestamp"] = "2026-01-02T03:04:05Z"
    prepare(new, copy.deepcopy(old))
    strategy.default(new)
    answer: Record = {}
    if causes := [_on_the_wire(cause) for cause in validate(new, old)]:
        answer["causes"] = causes
    else:
        answer["stored"] = _comparable({key: value for key, value in new.items() if key != "metadata"})
        if warnings := list(strategy.warnings(new, old)):
            answer["warnings"] = warnings
    return answer


def expected_answer(record: Record) -> Record:
    answer: Record = {}
    if "causes" in record:
        skipped = () if record["kind"] in NAMED_BY_CONTENT else OF_THE_SERVER
        causes = [cause for cause in record["causes"] if not cause.get("field", "").startswith(skipped)]
        # Kubernetes lists an error as often as it looks; an answer here has it once.
        answer["causes"] = [cause for place, cause in enumerate(causes) if cause not in causes[:place]]
    else:
        answer["stored"] = _comparable(record["stored"])
    if "warnings" in record:
        answer["warnings"] = record["warnings"]
    return answer


def _on_the_wire(cause: FieldError) -> Record:
    wire = {"reason": cause.reason, "message": cause.message, "field": cause.field}
    return {key: value for key, value in wire.items() if value}


def _without_nulls(value: Any) -> Any:
    """Return the object without nulls, as the server passes it to a strategy."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _comparable(obj: Object) -> Any:
    """Replace times, which differ from run to run."""
    if isinstance(obj, dict):
        return {key: "then" if key in MOMENTS else _comparable(value) for key, value in obj.items()}
    return [_comparable(item) for item in obj] if isinstance(obj, list) else obj
