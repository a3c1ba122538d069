"""A webhook decides which images run; its answers are cached, and its failures refuse pods unless configured."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.admission.plugins.optional.running import configure, running
from tests.auth.https_server import https_server
from tests.server.in_process import PODS, Object, pod

from pinnace.testing.clock import ManualClock


def decide(path: str, sent: Any) -> Any:
    images = [container["image"] for container in sent["spec"]["containers"]]
    if "broken" in images:
        return 500
    if "nonsense" in images:
        return {"status": {"allowed": "yes"}}
    reason = {"reason": "not signed"} if "unsigned" in images else {}
    return {**sent, "status": {"allowed": images == ["good"], "auditAnnotations": {"seen": "1", "a b": "2"}, **reason}}


def with_image(name: str, image: str, **more: Any) -> Object:
    body = pod(name, containers=[{"name": "c", "image": image}])
    body["metadata"].update(more)
    return body


async def test_the_webhook_reviews_images_and_its_answers_are_remembered(tmp_path: Path) -> None:
    clock = ManualClock()
    with https_server(tmp_path, decide) as webhook:
        policy = {"kubeConfigFile": str(webhook.kubeconfig(tmp_path / "config")), "allowTTL": 50, "denyTTL": 20}
        file = configure(tmp_path, "ImagePolicyWebhook", {"imagePolicy": policy})
        async with running("ImagePolicyWebhook", configuration=file, clock=clock) as server:
            annotations = {"break.image-policy.k8s.io/glass": "1", "other": "2"}
            assert (await server.post(PODS, with_image("a", "good", annotations=annotations))).status == 201
            passed_on = {"break.image-policy.k8s.io/glass": "1"}
            spec = {"containers": [{"image": "good"}], "annotations": passed_on, "namespace": "default"}
            kind = {"kind": "ImageReview", "apiVersion": "imagepolicy.k8s.io/v1alpha1", "metadata": {}}
            assert webhook.requests[0] == ("/", {**kind, "spec": spec, "status": {"allowed": False}})
            for image, why in (
                ("bad", "one or more images rejected by webhook backend"),
                ("unsigned", "image policy webhook backend denied one or more images: not signed"),
            ):
                refused = await server.post(PODS, with_image("b", image))
                assert (refused.status, refused.message) == (403, f'pods "b" is forbidden: {why}')
            assert len(webhook.requests) == 3
            await clock.advance(19)
            assert (await server.post(PODS, with_image("b", "bad"))).status == 403
            assert (await server.patch(f"{PODS}/a", {"metadata": {"labels": {"x": "y"}}})).status == 200
            assert len(webhook.requests) == 3
            await clock.advance(2)
            assert (await server.post(PODS, with_image("b", "bad"))).status == 403
            assert len(webhook.requests) == 4


@pytest.mark.parametrize("image", ["broken", "nonsense"])
@pytest.mark.parametrize("default_allow", [False, True])
async def test_a_webhook_that_fails_refuses_pods_unless_configured(
    tmp_path: Path, image: str, *, default_allow: bool
) -> None:
    clock = ManualClock()
    with https_server(tmp_path, decide) as webhook:
        kubeconfig = str(webhook.kubeconfig(tmp_path / "config"))
        policy = {"kubeConfigFile": kubeconfig, "defaultAllow": default_allow, "retryBackoff": 100}
        file = configure(tmp_path, "ImagePolicyWebhook", {"imagePolicy": policy})
        async with running("ImagePolicyWebhook", configuration=file, clock=clock) as server:
            answer = asyncio.ensure_future(server.post(PODS, with_image("a", image)))
            await _advance_until(clock, answer.done)
            reply = answer.result()
            assert reply.status == (201 if default_allow else 403)
            assert len(webhook.requests) == (5 if image == "broken" else 1)
            if not default_allow:
                why = "did not answer with an ImageReview" if image == "nonsense" else "answered 500"
                assert reply.message.startswith('pods "a" is forbidden: ')
                assert reply.message.endswith(why)


async def _advance_until(clock: ManualClock, is_done: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_done():
            await clock.advance(0.1)
            await asyncio.sleep(0.001)
