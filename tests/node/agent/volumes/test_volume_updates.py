"""Files in running pods follow their objects: ConfigMaps, Secrets, labels, and tokens that are about to expire."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Any

from tests.node.agent.conftest import RealNode
from tests.node.leftovers import processes_of

from pinnace.model.objects import Object

_REFRESH_SECONDS = 61
"""A little more than the time after which the agent reads the objects again."""


def _object(kind: str, **content: Any) -> Object:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "conf", "namespace": "default"}, **content}


async def _patch(node: RealNode, kind: str, patch: Object, name: str = "conf") -> None:
    await node.client.patch(f"v1/{kind}", name, patch, namespace="default")


async def test_changes_of_config_maps_and_secrets_reach_a_running_pod(node: RealNode) -> None:
    await node.client.create(_object("ConfigMap", data={"colour": "blue", "size": "small"}))
    await node.client.create(_object("Secret", stringData={"key": "first"}))
    await node.create(
        "reader",
        "sleep 1000",
        securityContext={"fsGroup": 1234},
        volumes=[
            {"name": "config", "configMap": {"name": "conf"}},
            {"name": "secret", "secret": {"secretName": "conf", "defaultMode": 0o400}},
            {
                "name": "all",
                "projected": {"sources": [{"configMap": {"name": "conf"}}, {"secret": {"name": "conf"}}]},
            },
            {"name": "later", "configMap": {"name": "later", "optional": True}},
        ],
        container={
            "env": [{"name": "COLOUR", "valueFrom": {"configMapKeyRef": {"name": "conf", "key": "colour"}}}],
            "volumeMounts": [
                *({"name": name, "mountPath": f"/{name}"} for name in ("config", "secret", "all", "later")),
                {"name": "config", "mountPath": "/fixed", "subPath": "colour"},
            ],
        },
    )
    await node.until_ready("reader")
    assert await node.read("reader", "/config/colour") == "blue"
    assert await node.read("reader", "/secret/key") == "first"
    await _patch(node, "ConfigMap", {"data": {"colour": "red", "size": None, "shape": "round"}})
    await _patch(node, "Secret", {"stringData": {"key": "second"}})
    await node.client.create(_object("ConfigMap", data={"x": "here"}) | {"metadata": {"name": "later"}})
    await node.advance(_REFRESH_SECONDS)
    for path, text in {
        "/config/colour": "red",
        "/config/shape": "round",
        "/secret/key": "second",
        "/all/colour": "red",
        "/all/key": "second",
        "/later/x": "here",
    }.items():
        await node.until_file("reader", path, lambda actual, text=text: actual == text)  # type: ignore[misc]
    assert "No such file" in await node.read("reader", "/config/size")
    # As in Kubernetes: variables and sub-paths keep the values of the start.
    assert await node.read("reader", "/fixed") == "blue"
    assert "COLOUR=blue" in await node.read("reader", "/proc/1/environ")


async def test_volumes_are_there_again_after_the_processes_of_the_node_were_killed(node: RealNode) -> None:
    """They are in memory that belongs to these processes. The pod starts again long before the next refresh."""
    await node.client.create(_object("ConfigMap", data={"colour": "blue"}))
    await node.create(
        "survivor",
        "cat /config/colour && sleep 1000",
        volumes=[{"name": "config", "configMap": {"name": "conf"}}],
        container={"volumeMounts": [{"name": "config", "mountPath": "/config"}]},
    )
    await node.until_ready("survivor")
    node.clock.pause()
    for process in processes_of(node.directory / "runtime"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)

    async def runs_again() -> bool:
        await node.clock.advance(0.1)
        [status] = ((await node.get("survivor")) or {})["status"]["containerStatuses"]
        assert status["lastState"].get("terminated", {}).get("reason") != "StartError", status
        return bool(status["restartCount"] and "running" in status["state"])

    await node.until(runs_again)
    assert await node.read("survivor", "/config/colour") == "blue"


async def test_changed_labels_and_annotations_reach_a_running_pod_at_once(node: RealNode) -> None:
    items = [{"path": what, "fieldRef": {"fieldPath": f"metadata.{what}"}} for what in ("labels", "annotations")]
    await node.create(
        "shown",
        "sleep 1000",
        metadata={"labels": {"app": "web"}, "annotations": {"note": "old"}},
        volumes=[{"name": "info", "downwardAPI": {"items": items}}],
        container={"volumeMounts": [{"name": "info", "mountPath": "/info"}]},
    )
    await node.until_ready("shown")
    assert await node.read("shown", "/info/labels") == 'app="web"'
    await _patch(node, "Pod", {"metadata": {"labels": {"tier": "front"}, "annotations": {"note": "new"}}}, "shown")
    await node.until_file("shown", "/info/labels", lambda text: text == 'app="web"\ntier="front"')
    await node.until_file("shown", "/info/annotations", lambda text: 'note="new"' in text)


async def test_a_service_account_token_is_replaced_before_it_expires(node: RealNode) -> None:
    token = {"serviceAccountToken": {"path": "token", "expirationSeconds": 600, "audience": "shop"}}
    await node.create(
        "caller",
        "sleep 1000",
        volumes=[{"name": "token", "projected": {"sources": [token]}}],
        container={"volumeMounts": [{"name": "token", "mountPath": "/token"}]},
    )
    await node.until_ready("caller")
    first = await node.read("caller", "/token/token")
    await node.advance(_REFRESH_SECONDS)
    assert await node.read("caller", "/token/token") == first
    for _ in range(8):  # In one jump, a refresh that began early in it would set the next one a minute after its end.
        await node.advance(_REFRESH_SECONDS)
    second = await node.until_file("caller", "/token/token", lambda text: text not in ("", first))
    review = await node.client.create(
        {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "metadata": {},
            "spec": {"token": second, "audiences": ["shop"]},
        }
    )
    assert review["status"]["authenticated"]
    assert review["status"]["user"]["username"] == "system:serviceaccount:default:default"
