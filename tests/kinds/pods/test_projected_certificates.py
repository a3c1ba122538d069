"""Projections of trust bundles and pod certificates are stored and rejected as by a real kube-apiserver 1.37."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from pinnace.kinds.pods.strategy import POD
from pinnace.model.objects import Object

_ANSWERS = Path(__file__).parents[1] / "answers" / "projected_certificates.json"


@pytest.mark.parametrize(
    "record", [pytest.param(answer, id=answer["name"]) for answer in json.loads(_ANSWERS.read_text())]
)
def test_a_projection_is_answered_as_kubernetes_answers_it(record: dict[str, Any]) -> None:
    volumes = [{"name": "v", "projected": {"sources": [copy.deepcopy(record["source"])]}}]
    pod: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "x:1"}], "volumes": volumes},
    }
    POD.default(pod)
    POD.prepare(pod, None)
    errs = [[err.field, err.reason, err.message] for err in POD.validate(pod, None)]
    assert errs == record.get("causes", [])
    if not errs:
        assert list(POD.warnings(pod, None)) == record.get("warnings", [])
        assert pod["spec"]["volumes"][0]["projected"]["sources"] == [record["stored"]]
