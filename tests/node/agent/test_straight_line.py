"""From kubectl apply to a running pod, its logs and its streams, to nothing left behind."""

from __future__ import annotations

import json

from tests.node.agent.conftest import NODE, RealNode

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web"},
    "spec": {
        "nodeName": NODE,
        "containers": [
            {
                "name": "main",
                "image": "host",
                "command": ["sh", "-c", "echo hello $KUBERNETES_SERVICE_PORT; sleep 1000"],
            }
        ],
    },
}


async def test_a_pod_is_applied_runs_is_used_and_deleted(node: RealNode) -> None:
    await node.kubectl("apply -f -", stdin=json.dumps(POD))
    pod = await node.until_ready("web")
    status = pod["status"]
    assert status["phase"] == "Running"
    assert status["podIP"].startswith("10.244.0.")
    assert status["containerStatuses"][0]["state"]["running"]
    assert status["containerStatuses"][0]["containerID"].startswith("pinnace://")
    await node.until_logs("web", "hello 443\n")
    assert await node.kubectl("logs web") == "hello 443\n"
    assert await node.kubectl("exec web -- cat /etc/hostname") == "web\n"
    assert await node.kubectl("exec -i web -- cat", stdin="through") == "through"
    token = await node.kubectl("exec web -- ls /var/run/secrets/kubernetes.io/serviceaccount")
    assert token.split() == ["ca.crt", "namespace", "token"]
    await node.kubectl("delete pod web --grace-period=1")
    assert await node.get("web") is None
    assert await node.runtime.sandboxes() == []
    assert list((node.directory / "agent" / "pods").iterdir()) == []
    assert list((node.directory / "runtime" / "pods").iterdir()) == []


async def test_a_job_runs_to_its_end(node: RealNode) -> None:
    await node.create("job", "echo done", restartPolicy="Never")
    pod = await node.until_phase("job", "Succeeded")
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (0, "Completed")
    assert await node.logs("job") == "done\n"
    await node.delete("job")


async def test_a_pod_that_fails_says_so(node: RealNode) -> None:
    await node.create("bad", "exit 3", restartPolicy="Never")
    pod = await node.until_phase("bad", "Failed")
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
