"""Pods on a real node: restarts, init containers, probes, volumes, environment, errors, and the end."""

from __future__ import annotations

from typing import Any

from tests.node.agent.conftest import RealNode

from pinnace.model.objects import Object


def _state(pod: Object, number: int = 0, kind: str = "containerStatuses") -> Object:
    statuses = (pod.get("status") or {}).get(kind) or []
    state: Object = statuses[number]["state"] if len(statuses) > number else {}
    return state


def _restarts(pod: Object) -> int:
    statuses = (pod.get("status") or {}).get("containerStatuses") or [{}]
    return int(statuses[0].get("restartCount") or 0)


def _waits_for(reason: str) -> Any:
    return lambda pod: _state(pod).get("waiting", {}).get("reason") == reason


async def test_a_container_that_ends_is_restarted_with_back_off(node: RealNode) -> None:
    await node.create("crash", "echo again; exit 4")
    pod = await node.until_pod("crash", _waits_for("CrashLoopBackOff"))
    status = pod["status"]["containerStatuses"][0]
    assert status["restartCount"] == 1
    assert status["lastState"]["terminated"]["exitCode"] == 4
    assert status["state"]["waiting"]["message"].startswith("back-off 10s restarting failed container=main")
    assert pod["status"]["phase"] == "Running"
    await node.until_logs("crash", "again\n")


async def test_init_containers_run_first_and_sidecars_stay(node: RealNode) -> None:
    volume = {"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}
    await node.create(
        "init",
        "cat /shared/first /shared/sidecar; sleep 1000",
        volumes=[{"name": "shared", "emptyDir": {}}],
        container=volume,
        initContainers=[
            {"name": "first", "image": "host", "command": ["sh", "-c", "echo one > /shared/first"], **volume},
            {
                "name": "sidecar",
                "image": "host",
                "restartPolicy": "Always",
                "command": ["sh", "-c", "echo two > /shared/sidecar; sleep 1000"],
                "startupProbe": {"exec": {"command": ["test", "-e", "/shared/sidecar"]}, "periodSeconds": 1},
                **volume,
            },
        ],
    )
    pod = await node.until_ready("init")
    assert _state(pod, 0, "initContainerStatuses")["terminated"]["reason"] == "Completed"
    assert _state(pod, 1, "initContainerStatuses")["running"]
    await node.until_logs("init", "one\ntwo\n")


async def test_a_sidecar_that_ends_later_holds_up_neither_restarts_nor_the_end(node: RealNode) -> None:
    sidecar = {"name": "sidecar", "image": "host", "restartPolicy": "Always", "command": ["sh", "-c", "sleep 0.5"]}
    await node.create("ends", "sleep 2", restartPolicy="Never", initContainers=[sidecar])
    await node.create("restarts", "sleep 2; exit 1", initContainers=[sidecar])
    pod = await node.until_phase("ends", "Succeeded")
    assert _state(pod)["terminated"]["exitCode"] == 0
    assert pod["status"]["initContainerStatuses"][0]["restartCount"] >= 1
    pod = await node.until_pod("restarts", lambda pod: _restarts(pod) >= 1)
    assert pod["status"]["phase"] == "Running"


async def test_an_init_container_that_fails_ends_a_pod_that_never_restarts(node: RealNode) -> None:
    init = {"name": "first", "image": "host", "command": ["false"]}
    await node.create("init", ["true"], restartPolicy="Never", initContainers=[init])
    pod = await node.until_phase("init", "Failed")
    assert _state(pod)["waiting"]["reason"] == "PodInitializing"


async def test_readiness_follows_the_probe_and_liveness_kills(node: RealNode) -> None:
    await node.create(
        "probed",
        "rm -f /tmp/dead; sleep 1000",
        container={
            "readinessProbe": {"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1},
            "livenessProbe": {
                "exec": {"command": ["sh", "-c", "! test -e /tmp/dead"]},
                "periodSeconds": 1,
                "failureThreshold": 1,
            },
        },
    )
    pod = await node.until_pod("probed", lambda pod: _state(pod).get("running"))
    assert not pod["status"]["containerStatuses"][0]["ready"]
    (container,) = await node.runtime.containers()
    await node.runtime.exec_sync(container.id, ["touch", "/tmp/ready"], timeout=60)
    await node.until_ready("probed")
    await node.runtime.exec_sync(container.id, ["touch", "/tmp/dead"], timeout=60)
    pod = await node.until_pod("probed", lambda pod: pod["status"]["containerStatuses"][0]["restartCount"] == 1)


async def test_http_probes_are_made_inside_the_pod(node: RealNode) -> None:
    await node.create(
        "served",
        ["/usr/bin/python3", "-m", "http.server", "8080"],
        container={"readinessProbe": {"httpGet": {"port": "web", "path": "/"}, "periodSeconds": 1}}
        | {"ports": [{"name": "web", "containerPort": 8080}]},
    )
    await node.until_ready("served")


async def test_configuration_reaches_files_and_variables(node: RealNode) -> None:
    metadata = {"name": "conf", "namespace": "default"}
    await node.client.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"colour": "blue"}}
    )
    await node.client.create(
        {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"key": "s3cret"}}
    )
    await node.create(
        "configured",
        "cat /config/colour /secret/key /info/labels; echo; echo $COLOUR $KEY $NAME $LIMIT $GREETING; sleep 1000",
        metadata={"labels": {"app": "web"}},
        volumes=[
            {"name": "config", "configMap": {"name": "conf"}},
            {"name": "secret", "secret": {"secretName": "conf"}},
            {
                "name": "info",
                "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]},
            },
        ],
        container={
            "volumeMounts": [{"name": name, "mountPath": f"/{name}"} for name in ("config", "secret", "info")],
            "resources": {"limits": {"memory": "64Mi", "cpu": "1"}},
            "env": [
                {"name": "COLOUR", "valueFrom": {"configMapKeyRef": {"name": "conf", "key": "colour"}}},
                {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "conf", "key": "key"}}},
                {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {
                    "name": "LIMIT",
                    "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}},
                },
                {"name": "GREETING", "value": "hi-$(NAME)-$$(NAME)"},
            ],
        },
    )
    await node.until_ready("configured")
    await node.until_logs("configured", 'blues3cretapp="web"\nblue s3cret configured 64 hi-configured-$(NAME)\n')


async def test_a_missing_config_map_is_waited_for(node: RealNode) -> None:
    reference = {"configMapKeyRef": {"name": "late", "key": "colour"}}
    await node.create(
        "late", "echo $COLOUR", container={"env": [{"name": "COLOUR", "valueFrom": reference}]}, restartPolicy="Never"
    )
    pod = await node.until_pod("late", _waits_for("CreateContainerConfigError"))
    assert _state(pod)["waiting"]["message"] == 'configmap "late" not found'
    metadata = {"name": "late", "namespace": "default"}
    await node.client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"colour": "red"}})
    await node.until_phase("late", "Succeeded")
    assert await node.logs("late") == "red\n"


async def test_errors_of_images_and_commands_have_kubelets_reasons(node: RealNode) -> None:
    await node.create("remote", ["true"], container={"image": "example.com/web:v1"})
    await node.create("never", ["true"], container={"image": "example.com/web:v1", "imagePullPolicy": "Never"})
    await node.create("invalid", ["true"], container={"image": "Not/A:Name:x"})
    await node.create("command", ["no-such-command"], restartPolicy="Never")
    pod = await node.until_pod("remote", _waits_for("ImagePullBackOff"))
    message = _state(pod)["waiting"]["message"]
    assert message.startswith('Back-off pulling image "example.com/web:v1": ErrImagePull: ')
    assert "allows pulls from loopback alone" in message
    await node.until_pod("never", _waits_for("ErrImageNeverPull"))
    await node.until_pod("invalid", _waits_for("InvalidImageName"))
    pod = await node.until_phase("command", "Failed")
    ended = _state(pod)["terminated"]
    assert (ended["reason"], ended["exitCode"]) == ("StartError", 128)
    assert ended["startedAt"] == "1970-01-01T00:00:00Z"  # As kubelet reports a process that never started.
    assert 'exec: "no-such-command": executable file not found in $PATH' in ended["message"]


async def test_a_pod_ends_gracefully(node: RealNode) -> None:
    await node.create("graceful", "trap 'echo bye; exit 0' TERM; while :; do sleep 0.05; done")
    await node.until_ready("graceful")
    (container,) = await node.runtime.containers()
    await node.delete("graceful")
    assert container.id not in [running.id for running in await node.runtime.containers()]


async def test_a_second_delete_shortens_the_end(node: RealNode) -> None:
    await node.create(
        "stubborn", "trap '' TERM; echo ready; while :; do sleep 0.05; done", terminationGracePeriodSeconds=3600
    )
    await node.until_ready("stubborn")
    await node.until_logs("stubborn", "ready\n")
    await node.client.delete("v1/Pod", "stubborn", namespace="default")
    await node.until_pod("stubborn", lambda pod: pod["metadata"].get("deletionTimestamp"))
    await node.client.delete("v1/Pod", "stubborn", namespace="default", grace_seconds=1)
    await node.until_gone("stubborn")


async def test_a_new_agent_takes_over_the_pods_of_the_old_one(node: RealNode) -> None:
    await node.create("lasting", "echo once; sleep 1000")
    before = await node.until_ready("lasting")
    await node.kill_agent()
    await node.runtime.close()
    await node.start_agent()
    await node.create("later", "sleep 1000")
    await node.until_ready("later")
    after = await node.until_ready("lasting")
    assert after["status"]["containerStatuses"] == before["status"]["containerStatuses"]
    await node.until_logs("lasting", "once\n")
    await node.delete("lasting")


async def test_a_pod_that_was_deleted_while_no_agent_ran_is_removed(node: RealNode) -> None:
    await node.create("forced", "sleep 1000")
    await node.until_ready("forced")
    await node.kill_agent()
    await node.runtime.close()
    await node.client.delete("v1/Pod", "forced", namespace="default", grace_seconds=0)
    await node.start_agent()

    async def is_clean() -> bool:
        return not await node.runtime.sandboxes()

    await node.until(is_clean)
