"""A forbidden change of a pod is printed as in Go: the texts are those of a real server (1.36)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.server.in_process import OPERATIONS, PODS, InProcess, control_plane

RECORDED = json.loads((Path(__file__).parent / "structs_1_36.json").read_text())
"""A pod spec with most of what there is, changes of a pod that has it, and changes of jobs that make such pods."""
JOBS = "/apis/batch/v1/namespaces/default/jobs"


@pytest.mark.parametrize("change", RECORDED["pod"], ids=lambda change: "".join(change["patch"]))
async def test_a_forbidden_change_of_a_pod_is_shown_line_by_line(change: dict[str, Any]) -> None:
    async with control_plane() as api:
        await api.made(PODS, {"metadata": {"name": "web"}, "spec": RECORDED["spec"]})
        refused = await api.patch(f"{PODS}/web", {"spec": change["patch"]})
        causes = [cause for cause in refused.json["details"]["causes"] if cause["field"] == "spec"]
    assert causes[0]["message"].partition("\n")[2] == change["change"]


@pytest.mark.parametrize("change", RECORDED["job"], ids=["running", "suspended"])
async def test_a_job_that_may_not_change_its_pods_is_shown_all_of_them(change: dict[str, Any]) -> None:
    spec = {**RECORDED["spec"], "restartPolicy": "Never", "initContainers": [{"name": "i", "image": "j"}]}
    metadata = {"labels": {"a": "b"}, "annotations": {"z": "1", "a": "2"}}
    job = {"manualSelector": True, "selector": {"matchLabels": {"a": "b"}}, "suspend": change["suspend"]}
    async with control_plane() as api:
        await api.made(
            JOBS, {"metadata": {"name": "web"}, "spec": {**job, "template": {"metadata": metadata, "spec": spec}}}
        )
        cause = (await other_image(api))["details"]["causes"][0]
    assert (cause["field"], cause["message"]) == (change["field"], change["message"])


async def other_image(api: InProcess) -> Any:
    path = "/spec/template/spec/containers/0/image"
    return (await api.patch(f"{JOBS}/web", [{"op": "replace", "path": path, "value": "k"}], OPERATIONS)).json
