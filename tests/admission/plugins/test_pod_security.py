"""Pod security: the recorded answers of Kubernetes 1.36 to many kinds of pods, and the warnings about namespaces."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.server.in_process import DEPLOYMENTS, PODS, InProcess, Object, deployment, pod

from pinnace.admission.plugins.pod_security import Level, violations

ANSWERS = [json.loads(line) for line in Path(__file__).with_name("pod_security_1_36.jsonl").read_text().splitlines()]
DEFAULT = "/api/v1/namespaces/default"
ENFORCE = "pod-security.kubernetes.io/enforce"


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: answer["level"])
def test_pods_are_refused_in_kubernetes_words(answer: Object) -> None:
    name, _, version = answer["level"].partition(":")
    level = Level(name, int(version.removeprefix("v1.")) if version else None)
    _, report = violations({"metadata": {"annotations": answer["annotations"]}, "spec": answer["spec"]}, level)
    message = f'pods "web" is forbidden: violates PodSecurity "{level}": {report}' if report else ""
    assert message == answer["message"]


async def test_a_workload_is_warned_of_what_its_pods_will_be_refused_for(api: InProcess) -> None:
    await api.patch(DEFAULT, {"metadata": {"labels": {ENFORCE: "baseline"}}})
    body = deployment()
    body["spec"]["template"]["spec"]["hostNetwork"] = True
    reply = await api.post(DEPLOYMENTS, body)
    assert reply.status == 201
    assert reply.header("warning") == [
        '299 - "would violate PodSecurity \\"baseline:latest\\": host namespaces (hostNetwork=true)"'
    ]
    assert (await api.post(PODS, pod(hostNetwork=True))).status == 403
    assert (await api.post(PODS, pod())).status == 201


async def test_a_stricter_namespace_causes_warnings_about_its_pods(api: InProcess) -> None:
    await api.made(PODS, pod("one", hostPID=True))
    await api.made(PODS, pod("two", hostPID=True))
    reply = await api.patch(DEFAULT, {"metadata": {"labels": {ENFORCE: "baseline"}}})
    assert reply.header("warning") == [
        '299 - "existing pods in namespace \\"default\\" violate the new PodSecurity enforce level '
        '\\"baseline:latest\\""',
        '299 - "one (and 1 other pod): host namespaces"',
    ]


async def test_a_level_that_does_not_exist_is_refused(api: InProcess) -> None:
    reply = await api.patch(DEFAULT, {"metadata": {"labels": {ENFORCE: "strict", f"{ENFORCE}-version": "2"}}})
    assert reply.message == (
        'Namespace "default" is invalid: [metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: '
        '"strict": must be one of privileged, baseline, restricted, '
        'metadata.labels[pod-security.kubernetes.io/enforce-version]: Invalid value: "2": '
        'must be "latest" or "v1.x"]'
    )


async def test_a_label_that_is_taken_away_frees_the_namespace(api: InProcess) -> None:
    await api.patch(DEFAULT, {"metadata": {"labels": {ENFORCE: "restricted"}}})
    assert (await api.post(PODS, pod())).status == 403
    await api.patch(DEFAULT, {"metadata": {"labels": {ENFORCE: None}}})
    assert (await api.post(PODS, pod())).status == 201
