"""get, describe, apply and delete say what kubectl says, word for word, of the same cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.kubectl_twin import Twin, comparable
from tests.clients.conftest import api_client, kubeconfig, kubectl, kubectl_cache, namespace
from tests.clients.kubectl_command import Kubectl, Outcome

from pinnace.cli.describe.parts import title_of

__all__ = ["api_client", "kubeconfig", "kubectl", "kubectl_cache", "namespace"]

OBJECTS = Path(__file__).parent / "objects.yaml"
WIDGET = """
apiVersion: twin.example.com/v1
kind: Widget
metadata: {name: w}
spec: {apiVersion: x, some: [a, b], count: 3, ratio: 1.5, on: true, nothing: null,
  nested: {a-b: c, aUid: 3, dns1: x, list: [{a: 1, b: 2}, {c: {d: e}}], empty: {}, none: []}}
"""
DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.twin.example.com}
spec:
  group: twin.example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, shortNames: [wd], categories: [all]}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""
NODE = """
apiVersion: v1
kind: Node
metadata: {name: twin-node, labels: {node-role.kubernetes.io/worker: "", zone: a}}
spec: {taints: [{key: a, value: b, effect: NoSchedule}], podCIDR: 10.0.0.0/24, podCIDRs: [10.0.0.0/24]}
status:
  capacity: {cpu: "4", memory: 8Gi, pods: "110", example.com/gpu: "2"}
  allocatable: {cpu: "4", memory: 8Gi, pods: "110", example.com/gpu: "2"}
  addresses: [{type: InternalIP, address: 10.1.1.1}]
  conditions:
    - {type: Ready, status: "True", reason: KubeletReady, message: ok, lastHeartbeatTime: "2026-01-01T10:00:00Z",
       lastTransitionTime: "2026-01-01T10:00:00Z"}
"""
POD_STATUS = {
    "status": {
        "phase": "Running",
        "startTime": "2026-01-01T10:00:00Z",
        "hostIP": "10.1.1.1",
        "podIP": "10.2.2.2",
        "podIPs": [{"ip": "10.2.2.2"}],
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [
            {
                "name": "one",
                "image": "nginx",
                "imageID": "sha",
                "containerID": "c://1",
                "ready": True,
                "restartCount": 2,
                "state": {"running": {"startedAt": "2026-01-01T10:00:00Z"}},
                "lastState": {
                    "terminated": {
                        "exitCode": 1,
                        "reason": "Error",
                        "startedAt": "2026-01-01T09:00:00Z",
                        "finishedAt": "2026-01-01T09:30:00Z",
                    }
                },
            },
            {
                "name": "two",
                "image": "redis",
                "imageID": "",
                "ready": False,
                "restartCount": 0,
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            },
        ],
    }
}
EVENT = """
apiVersion: v1
kind: Event
metadata: {{name: full.1}}
involvedObject: {{apiVersion: v1, kind: Pod, name: full, namespace: {namespace}, uid: {uid}}}
reason: Pulled
message: "  pulled it "
type: Normal
count: 3
firstTimestamp: "2026-01-01T10:00:00Z"
lastTimestamp: "2026-01-01T10:30:00Z"
source: {{component: kubelet}}
"""


@pytest.fixture
def twin(kubectl: Kubectl) -> Iterator[Twin]:
    """A namespace full of objects, a custom kind, and a node."""
    kubectl("apply -f -", stdin=DEFINITION)
    kubectl("apply -f -", stdin=NODE)
    kubectl("wait --for=condition=Established crd/widgets.twin.example.com")
    kubectl("apply -f -", stdin=OBJECTS.read_text())
    kubectl("apply -f -", stdin=WIDGET)
    kubectl(f"patch pod full --subresource=status --type=merge -p '{json.dumps(POD_STATUS)}'")
    uid = kubectl("get pod full -o jsonpath={.metadata.uid}")
    kubectl("apply -f -", stdin=EVENT.format(namespace=kubectl.namespace, uid=uid))
    yield Twin(kubectl)
    kubectl("delete node twin-node --ignore-not-found")


GET = [
    "get configmaps",
    "get cm a",
    "get cm a bcd",
    "get cm/a secret/s1",
    "get cm,secret",
    "get cm,svc -o wide",
    "get ConfigMap a",
    "get deployments.apps",
    "get deployments.v1.apps web -o=wide",
    "get all",
    "get wd",
    "get widgets.twin.example.com w",
    "get cm -l app=web",
    "get cm -l app=nope",
    "get cm -l 'app in (web, db),tier!=x'",
    "get pods --field-selector metadata.name=full",
    "get pods -A --field-selector metadata.name=full",
    "get nodes twin-node -A",
    "get cm a -o json",
    "get cm a -o yaml",
    "get cm a -oyaml --show-managed-fields",
    "get cm,secret -o yaml",
    "get deploy web -o yaml",
    "get cm,secret -o name",
    "get cm a -o jsonpath={.data.key}",
    "get cm -o jsonpath={.items[*].metadata.name}",
    """get cm -o jsonpath='{range .items[*]}{.metadata.name}{"\\t"}{.metadata.labels}{"\\n"}{end}'""",
    """get pod full -o jsonpath='{.status.conditions[?(@.type=="Ready")].status}'""",
    "get cm a -o jsonpath={.nope.x}",
    "get cm a -o jsonpath-as-json={.metadata.labels}",
    "get cm -o custom-columns=NAME:.metadata.name,DATA:.data.key",
    "get cm -o custom-columns=NAME:metadata.name,LABELS:.metadata.labels --no-headers",
    "get pods -o custom-columns=NAME:.metadata.name,IMAGES:.spec.containers[*].image",
    "get cm --show-labels",
    "get cm -L app,tier",
    "get cm --sort-by=.metadata.name",
    "get cm --sort-by {.metadata.name} -o name",
    "get cm --sort-by .data.a",
    "get cm --sort-by=.nope",
    "get pods --sort-by=.nope",
    "get cm a --sort-by=.nope",
    "get cm a -o name --sort-by=.nope",
    "get secret,pods -o name --sort-by=.spec.nodeName",
    "get pods --show-kind",
    "get cm --no-headers",
    "get deploy web --subresource=status -o name",
    "get cm a --ignore-not-found",
    "get cm nope --ignore-not-found",
    "get pods -n nowhere",
    "get crd widgets.twin.example.com",
]
REFUSED = [
    "get cm nope",
    "get cm nope a",
    "get cm nope nada",
    "get nope",
    "get nopes.example.com",
    "get pod full -A",
    "get pods full -l a=b",
    "get pod/full cm",
    "get pod/full/x",
    "get cm -o custom-columns=foo",
    "get cm -l '!!'",
    "get cm --field-selector foo=bar",
    "get cm -o name --sort-by=.nope",
    "get cm a bcd --sort-by=.nope",
    "get cm,secret --sort-by=.nope",
    "get cm,secret --sort-by=.data.key",
    "get cm -o name --sort-by=a{b",
    "get -f /nowhere.yaml",
    "describe pod nope",
    "describe nope x",
    "apply -f /nowhere.yaml",
    "apply",
    "delete",
    "delete cm",
    "delete cm nope",
    "delete nopes x",
    "delete cm a --cascade=foo",
    "delete cm a -o yaml",
    "delete cm a --all",
    "delete cm/a --all",
    "delete --all",
]
DESCRIBE = [
    "describe pod full",
    "describe pod full --show-events=false",
    "describe deploy web",
    "describe svc web",
    "describe cm bcd",
    "describe widget w",
    "describe wd",
    "describe node twin-node",
    "describe pods -l a=b",
]


@pytest.mark.parametrize("commands", [GET, REFUSED, DESCRIBE], ids=["get", "refused", "describe"])
def test_both_say_the_same(commands: list[str], twin: Twin) -> None:
    differing = []
    for command in commands:
        try:
            twin.say_the_same(command)
        except AssertionError as difference:
            differing.append(str(difference))
    assert not differing, "\n\n".join(differing)


def test_the_beginning_of_a_name_describes_all_that_begin_so(twin: Twin) -> None:
    assert twin("describe pod fu").stdout.split()[:2] == ["Name:", "full"]


def test_a_namespace_is_described_with_its_quotas_and_limits(twin: Twin) -> None:
    twin.kubectl("create quota q --hard=pods=20,requests.cpu=4")
    limits = "[{type: Container, max: {cpu: '2'}, default: {cpu: '1'}, defaultRequest: {cpu: 100m}}]"
    twin.kubectl(
        "apply -f -", stdin=f"apiVersion: v1\nkind: LimitRange\nmetadata: {{name: l}}\nspec: {{limits: {limits}}}"
    )
    twin.say_the_same(f"describe namespace {twin.kubectl.namespace}")


def test_objects_are_shown_by_the_files_that_name_them(twin: Twin) -> None:
    twin.say_the_same(f"get -f {OBJECTS}")
    twin.say_the_same(f"get -f {OBJECTS} -o name")
    twin.say_the_same("describe -f -", stdin=WIDGET)


@pytest.mark.parametrize(
    ("field", "title"),
    [
        ("apiVersion", "API Version"),
        ("someURLs", "Some URLs"),
        ("HTTPPort", "HTTPPort"),
        ("lastTransitionTime", "Last Transition Time"),
        ("cert-manager", "Cert - Manager"),
        ("dns1", "dns1"),
        ("uid", "UID"),
    ],
)
def test_fields_of_custom_kinds_have_titles(field: str, title: str) -> None:
    assert title_of(field) == title


def test_secrets_are_described_without_their_values(twin: Twin) -> None:
    output = twin("describe secret s1").stdout
    assert "password:  7 bytes" in output
    assert "hunter2" not in output


STEPS = [step.partition("\n") for step in (Path(__file__).parent / "apply_steps.txt").read_text().split("\n====\n")]
"""Each is taken with both, in a namespace for each. Then what is stored must be the same, managers included."""


def stored(kubectl: Kubectl) -> Any:
    """All objects of a namespace, without what is never the same twice, and without what controllers write."""
    listed = kubectl.json("get cm,deploy,svc,widgets --show-managed-fields")
    for item in listed["items"]:
        metadata = item["metadata"]
        item.pop("status", None)
        metadata.get("annotations", {}).pop("deployment.kubernetes.io/revision", None)
        metadata["managedFields"] = [
            entry for entry in metadata["managedFields"] if "controller" not in entry["manager"]
        ]
    return _steady(json.loads(json.dumps(listed["items"]).replace(kubectl.namespace, "NAMESPACE")))


def _steady(value: Any) -> Any:
    changing = ("uid", "resourceVersion", "creationTimestamp", "clusterIP", "clusterIPs", "time")
    if isinstance(value, dict):
        return {name: _steady(inner) for name, inner in value.items() if name not in changing}
    return [_steady(inner) for inner in value] if isinstance(value, list) else value


def test_both_store_the_same_after_apply_and_delete(kubectl: Kubectl) -> None:
    kubectl("apply -f -", stdin=DEFINITION)
    kubectl("wait --for=condition=Established crd/widgets.twin.example.com")
    kubectl(f"create namespace {kubectl.namespace}-twin")
    other = Kubectl(kubectl.binary, kubectl.kubeconfig, kubectl.cache, f"{kubectl.namespace}-twin")
    twin = Twin(other)
    try:
        for command, _, document in STEPS:
            theirs, ours = kubectl.outcome(command, stdin=document), twin(command, stdin=document)
            assert _here(comparable(ours)) == _here(comparable(theirs)), f"{command} {document}"
            assert stored(other) == stored(kubectl), f"{command} {document}"
    finally:
        kubectl(f"delete namespace {other.namespace} --wait=false")


def _here(outcome: Outcome) -> Outcome:
    return Outcome(outcome.code, outcome.stdout.replace("-twin", ""), outcome.stderr.replace("-twin", ""))


def test_apply_warns_of_an_object_without_its_annotation_and_takes_it_over(twin: Twin) -> None:
    twin.kubectl("create configmap bare")
    ours = twin("apply -f -", stdin="{apiVersion: v1, kind: ConfigMap, metadata: {name: bare}, data: {a: b}}")
    assert ours.stdout == "configmap/bare configured\n"
    assert "Warning: resource configmaps/bare is missing the kubectl.kubernetes.io/last-applied" in ours.stderr


def test_a_conflict_of_managers_says_who_and_what(twin: Twin) -> None:
    document = "{apiVersion: v1, kind: ConfigMap, metadata: {name: shared}, data: {a: VALUE}}"
    twin("apply -f - --server-side", stdin=document.replace("VALUE", "one"))
    ours = twin("apply -f - --server-side --field-manager=other", stdin=document.replace("VALUE", "two"))
    assert ours.code == 1
    assert ours.stderr.startswith('error: Apply failed with 1 conflict: conflict with "kubectl": .data.a\n')
    assert "--force-conflicts" in ours.stderr


def test_a_directory_is_applied_with_those_in_it_if_asked(twin: Twin, tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    document = "{apiVersion: v1, kind: ConfigMap, metadata: {name: NAME}}"
    (tmp_path / "one.yaml").write_text(document.replace("NAME", "one"))
    (tmp_path / "inner" / "two.json").write_text(
        json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "two"}})
    )
    (tmp_path / "readme.txt").write_text("not an object")
    assert twin(f"apply -f {tmp_path}").stdout == "configmap/one created\n"
    assert twin(f"apply -R -f {tmp_path}").stdout == "configmap/two created\nconfigmap/one unchanged\n"


def test_a_server_that_is_not_there_is_said_to_be_so(tmp_path: Path, twin: Twin) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(twin.kubectl.kubeconfig.read_text().replace("https://127.0.0.1:", "https://127.0.0.1:1#"))
    nowhere = Twin(Kubectl(twin.kubectl.binary, path, twin.kubectl.cache, "default"))
    ours = nowhere("get pods")
    assert ours.code == 1
    assert "refused - did you specify the right host or port?" in ours.stderr
