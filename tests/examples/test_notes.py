"""The stories of the notes on running pods: manifests as written, kubectl, Services and names, on a real node."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.clients.kubectl_command import Kubectl, kubectl_binary
from tests.clients.server_process import ServerProcess
from tests.machine import PROGRAMS, need
from tests.node.images.image_files import BuiltImage, directory, entry, layer, link
from tests.node.namespaces import need_namespaces
from tests.waiting import until

import pinnace

_NOTES = Path(__file__).parents[2] / "examples" / "11-notes"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with a node that has the images of the notes."""
    need_namespaces()
    need("curl")
    need("kubectl")
    place = tmp_path_factory.mktemp("notes")
    images = place / "data" / "node" / "images"
    images.mkdir(parents=True)
    table = subprocess.run([sys.executable, _NOTES / "images" / "table.py"], capture_output=True, check=True)
    (images / "host-images").write_bytes(table.stdout)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PINNACE_OFFLINE", "1")
        _load_busybox(place)
        if Path(kubectl_binary()).parent == PROGRAMS:  # Pods see no kubectl of this machine.
            _load_kubectl_proxy(place)
        started = ServerProcess.start(place, "--data-dir", str(place / "data"), "--node")
    try:
        yield started
    finally:
        code = started.stop()
    assert code == 0, started.log.read_text()


@pytest.fixture
def kubectl(server: ServerProcess, tmp_path: Path) -> Kubectl:
    kubectl = Kubectl(kubectl_binary(), server.await_kubeconfig(), tmp_path, "default")
    until(lambda: kubectl("get nodes -o name") and kubectl("wait --for=condition=Ready --timeout=120s node --all"))
    return kubectl


def _load_busybox(place: Path) -> None:
    """Make the image that the notes look names up with, from this machine's static busybox."""
    applets = [link(f"bin/{name}", "/bin/busybox") for name in ("sh", "nslookup", "wget", "date", "tail", "sleep")]
    program = entry("bin/busybox", Path(need("busybox")).read_bytes(), mode=0o755)
    folders = [directory("bin"), directory("etc"), directory("tmp", 0o777)]
    _load(place, BuiltImage([layer(*folders, program, *applets)]), "busybox:1.28")


def _load_kubectl_proxy(place: Path) -> None:
    program = entry("bin/kubectl", Path(kubectl_binary()).read_bytes(), mode=0o755)
    config = {"Cmd": ["/bin/kubectl", "proxy", "--port=8001"]}
    _load(place, BuiltImage([layer(directory("bin"), program, directory("etc"))], config), "luksa/kubectl-proxy:1.6.2")


def _load(place: Path, image: BuiltImage, name: str) -> None:
    archive = image.write_docker(place / "image.tar", name)
    command = [sys.executable, "-m", "pinnace.cli.main", "image", "load", str(archive)]
    environment = os.environ | {"PYTHONPATH": str(Path(pinnace.__file__).parents[1])}
    subprocess.run([*command, "--directory", str(place / "data" / "node")], check=True, env=environment)


def _run(kubectl: Kubectl, name: str, command: str, *, image: str = "busybox:1.28") -> str:
    """Run a command in a pod of its own, and return its output."""
    kubectl(f"run {name} --image={image} --restart=Never -- {command}")
    until(lambda: kubectl(f"get pod {name} -o jsonpath={{.status.phase}}") in ("Succeeded", "Failed"))
    output = kubectl(f"logs {name}")
    kubectl(f"delete pod {name} --grace-period=0 --wait=false")
    return output


def test_the_cron_job_of_an_old_version_is_stored_and_can_be_tried(kubectl: Kubectl) -> None:
    """It comes first: its schedule has until the last test."""
    assert "cronjob.batch/cronjob-example created" in kubectl(f"apply -f {_NOTES}/cronjob.yaml")
    kubectl("create job now --from=cronjob/cronjob-example")
    kubectl("wait --for=condition=Complete --timeout=120s job/now")
    assert kubectl("logs job/now").strip()


def test_alice_is_defined_stored_shown_and_validated(kubectl: Kubectl) -> None:
    kubectl(f"apply -f {_NOTES}/alice-crd.yaml")
    kubectl("wait --for=condition=Established --timeout=120s crd alices.iamslash.com")
    assert "my-custom-resource created" in kubectl(f"apply -f {_NOTES}/alice.yaml")
    assert kubectl("get alices -o name") == kubectl("get ac -o name") == "alice.iamslash.com/my-custom-resource\n"
    described = kubectl("describe ac my-custom-resource")
    assert "Kind:         Alice" in described and "Myvalue:  This is my value" in described
    alice = {"apiVersion": "iamslash.com/v1alpha1", "kind": "Alice", "metadata": {"name": "bad"}}
    assert "spec: Required value" in kubectl.failure("apply -f -", stdin=json.dumps(alice))
    assert "spec.myvalue: Required value" in kubectl.failure("apply -f -", stdin=json.dumps({**alice, "spec": {}}))
    wrong = json.dumps({**alice, "spec": {"myvalue": 7}})
    assert 'spec.myvalue in body must be of type string: "integer"' in kubectl.failure("apply -f -", stdin=wrong)
    kubectl(f"delete -f {_NOTES}/alice.yaml -f {_NOTES}/alice-crd.yaml")


def test_a_website_is_served_by_a_controller_that_runs_as_a_pod(kubectl: Kubectl) -> None:
    kubectl(f"apply -f {_NOTES}/website-crd.yaml")
    kubectl("create serviceaccount website-controller")
    account = "--serviceaccount=default:website-controller"
    kubectl("create clusterrole websites --verb=get,list,watch --resource=websites.extensions.example.com")
    kubectl(f"create clusterrolebinding websites --clusterrole=websites {account}")
    kubectl(f"create rolebinding website-controller --clusterrole=edit {account}")
    kubectl(f"apply -f {_NOTES}/website-controller.yaml")
    kubectl(f"apply -f {_NOTES}/website.yaml")
    assert "kubia" in kubectl("get ws")
    until(lambda: kubectl.outcome("get deployment kubia-website").code == 0)
    kubectl("rollout status deployment kubia-website --timeout=120s")
    page = "<h1>Served from https://github.com/luksa/kubia-website-example.git</h1>\n"
    assert _run(kubectl, "visitor", "curl -sS --max-time 20 http://kubia-website/", image="curlimages/curl") == page
    port = kubectl("get service kubia-website -o jsonpath={.spec.ports[0].nodePort}")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60) as answer:
        assert answer.read().decode() == page
    kubectl(f"delete -f {_NOTES}/website.yaml")
    until(lambda: kubectl("get deployments,replicasets,services,pods -l webserver=kubia-website -o name") == "")
    kubectl("delete deployment website-controller")


def test_the_job_prints_and_completes(kubectl: Kubectl) -> None:
    kubectl(f"apply -f {_NOTES}/job.yaml")
    kubectl("wait --for=condition=Complete --timeout=120s job/job-hello-world")
    assert kubectl("logs job/job-hello-world") == "Hello, World\n"


def test_the_daemon_set_tolerates_the_taint_of_a_master(kubectl: Kubectl) -> None:
    kubectl("taint nodes --all node-role.kubernetes.io/master=:NoSchedule")
    try:
        kubectl(f"apply -f {_NOTES}/daemonset.yaml")
        kubectl("rollout status daemonset daemonset-example --timeout=120s")
        kubectl("run intolerant --image=busybox -- sleep 1000")
        kubectl("wait --for=jsonpath={.status.conditions[0].reason}=Unschedulable --timeout=120s pod intolerant")
    finally:
        kubectl("taint nodes --all node-role.kubernetes.io/master-")
    kubectl("wait --for=condition=Ready --timeout=120s pod intolerant")
    kubectl("delete pod intolerant --grace-period=0 --force")
    kubectl("delete daemonset daemonset-example --wait=false")


def test_the_members_of_the_stateful_set_are_found_by_name(kubectl: Kubectl) -> None:
    kubectl(f"apply -f {_NOTES}/statefulset.yaml")
    kubectl("rollout status statefulset statefulset-example --timeout=120s")
    pods = json.loads(kubectl("get pods -l name=statefulset-example -o json"))["items"]
    addresses = {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in pods}
    assert len(addresses) == 3
    answer = _run(kubectl, "debug", "nslookup statefulset-service.default.svc.cluster.local")
    assert all(address in answer for address in addresses.values()), answer
    # As the notes write it, with the name that /etc/resolv.conf completes, and without an image of busybox.
    command = "run -i --tty --image busybox debug --restart=Never --rm nslookup"
    _await_output(kubectl, f"{command} statefulset-service", *addresses.values())
    _await_output(kubectl, f"{command} statefulset-servcice", "can't resolve 'statefulset-servcice'")
    member = _run(kubectl, "member", "wget -qO- http://statefulset-example-1.statefulset-service/")
    assert member == "You accessed to statefulset-example-1\n"
    kubectl("delete statefulset statefulset-example --wait=false")


def _await_output(kubectl: Kubectl, command: str, *parts: str) -> None:
    """Run a command until it has printed all parts: kubectl attaches to it late and may miss its first lines."""
    for _ in range(10):
        printed = kubectl.outcome(command).stdout
        if all(part in printed for part in parts):
            return
    pytest.fail(f"expected {parts} from kubectl {command}, found {printed}")


def test_a_killed_process_and_a_deleted_pod_come_back(kubectl: Kubectl) -> None:
    kubectl("create deployment heals --image=busybox -- sh -c 'sleep 1000 & echo sleeping; wait; exit 1'")
    kubectl("rollout status deployment heals --timeout=120s")
    until(lambda: "sleeping" in kubectl("logs deploy/heals"))  # Before that there may be no process to kill.
    killed = kubectl.outcome("exec deploy/heals -- sh -c 'kill -9 -1'")
    assert "error" not in killed.stderr, killed
    restarts = "get pods -l app=heals -o jsonpath={.items[0].status.containerStatuses[0].restartCount}"
    until(lambda: kubectl(restarts) == "1")
    before = kubectl("get pods -l app=heals -o name")
    kubectl("delete pod -l app=heals --grace-period=0 --force")
    kubectl("rollout status deployment heals --timeout=120s")
    assert kubectl("get pods -l app=heals -o name") != before
    kubectl("delete deployment heals --wait=false")


def test_the_volumes_of_a_stateful_set_keep_their_data(kubectl: Kubectl) -> None:
    kubectl(f"apply -f {_NOTES}/statefulset-volumes.yaml")
    kubectl("rollout status statefulset statefulset-volumes --timeout=120s")
    page = "/var/www/html/index.html"
    for number in (0, 1):
        kubectl(f"exec statefulset-volumes-{number} -- sh -c 'echo page of {number} > {page}'")
    before = kubectl("get pod statefulset-volumes-1 -o jsonpath={.metadata.uid}")
    kubectl("delete pod statefulset-volumes-1")
    until(
        lambda: kubectl.outcome("get pod statefulset-volumes-1 -o jsonpath={.metadata.uid}").stdout not in ("", before)
    )
    kubectl("wait --for=condition=Ready --timeout=120s pod statefulset-volumes-1")
    assert kubectl(f"exec statefulset-volumes-1 -- cat {page}") == "page of 1\n"
    kubectl("delete statefulset statefulset-volumes")
    until(lambda: kubectl("get pods -l name=statefulset-volumes -o name") == "")
    kubectl(f"apply -f {_NOTES}/statefulset-volumes.yaml")
    kubectl("rollout status statefulset statefulset-volumes --timeout=120s")
    assert kubectl(f"exec statefulset-volumes-0 -- cat {page}") == "page of 0\n"
    kubectl("delete statefulset statefulset-volumes --wait=false")
    kubectl("delete pvc webserver-files-statefulset-volumes-0 webserver-files-statefulset-volumes-1 --wait=false")


def test_a_pod_waits_for_the_scheduler_that_it_names(kubectl: Kubectl) -> None:
    kubectl(f"apply -f {_NOTES}/custom-scheduled-pod.yaml")
    assert kubectl("get pod custom-scheduled-pod -o jsonpath={.spec.nodeName}") == ""
    scheduler = _NOTES.parent / "09-scheduler" / "my_scheduler.py"
    command = [sys.executable, "-m", "pinnace.cli.main", "run", str(scheduler), "--no-reload"]
    source = str(Path(pinnace.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": source, "KUBECONFIG": str(kubectl.kubeconfig)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: kubectl("get pod custom-scheduled-pod -o jsonpath={.status.phase}") == "Running")
    finally:
        process.terminate()
        process.wait(60)
    kubectl("delete pod custom-scheduled-pod --grace-period=0 --force")


_LOAD = """
import json, time, urllib.request
good, bad, seen = 0, [], set()
deadline = time.monotonic() + 600
while time.monotonic() < deadline:
    try:
        seen.add(urllib.request.urlopen("http://rolling/", timeout=60).read().decode())
        good += 1
    except OSError as error:
        bad.append(str(error))
    print(json.dumps({"good": good, "bad": bad, "seen": len(seen)}), flush=True)
    time.sleep(0.005)
"""


def test_a_rolling_update_under_load_fails_no_request(kubectl: Kubectl) -> None:
    kubectl(f"apply -f {_NOTES}/rolling.yaml")
    kubectl("rollout status deployment rolling --timeout=120s")
    pod = {"name": "load", "image": "python", "command": ["python3", "-c", _LOAD]}
    spec = {"containers": [pod], "restartPolicy": "Never", "terminationGracePeriodSeconds": 0}
    load = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "load"}, "spec": spec}
    kubectl("apply -f -", stdin=json.dumps(load))

    def counted() -> dict[str, Any]:
        lines = kubectl("logs load --tail=1")
        return dict(json.loads(lines)) if lines.endswith("}\n") else {"good": 0, "bad": [], "seen": 0}

    kubectl("wait --for=condition=Ready --timeout=120s pod load")
    until(lambda: counted()["seen"] == 2)
    kubectl("set env deployment/rolling VERSION=2")
    kubectl("rollout status deployment rolling --timeout=120s")
    until(lambda: counted()["seen"] == 4)
    until(lambda: len(kubectl("get pods -l app=rolling -o name").split()) == 2)
    result = counted()
    assert result["bad"] == [] and result["good"] > 20, result
    kubectl("delete pod load --grace-period=0 --force")
    kubectl("delete deployment,service rolling --wait=false")


def test_the_cron_job_runs_by_its_schedule(kubectl: Kubectl) -> None:
    def jobs() -> list[str]:
        listed = kubectl.json("get jobs")["items"]
        owned = [obj for obj in listed if obj["metadata"].get("ownerReferences", [{}])[0].get("kind") == "CronJob"]
        return [obj["metadata"]["name"] for obj in owned if obj["metadata"]["name"] != "now"]

    names = until(jobs, seconds=90)  # The schedule is every minute.
    kubectl(f"wait --for=condition=Complete --timeout=120s job/{names[0]}")
    assert kubectl(f"logs job/{names[0]}").strip()
    kubectl("delete cronjob cronjob-example")
