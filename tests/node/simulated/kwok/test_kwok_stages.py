"""Stage files of KWOK decide the life of simulated pods and nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.node.simulated.pods import pod

from pinnace.model.objects import Object
from pinnace.node.simulated.durations import parse_duration
from pinnace.node.simulated.kwok.files import load_stages
from pinnace.node.simulated.kwok.jq import InvalidExpression, Query
from pinnace.node.simulated.kwok.template import GoTemplate
from pinnace.node.simulated.kwok.template_syntax import TemplateError
from pinnace.node.simulated.stages import InvalidStage
from pinnace.testing.cluster import Cluster

RUNNING = """
{{ $now := Now }}
phase: Running
startTime: {{ $now | Quote }}
conditions:
{{ range $index, $type := list "Initialized" "Ready" }}
- {type: {{ $type }}, status: "True", lastTransitionTime: {{ $now | Quote }}}
{{ end }}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: ""
  ready: true
  restartCount: 0
  state: {running: {startedAt: {{ $now | Quote }}}}
{{ end }}
{{ with NodeIPsWith .spec.nodeName }}
hostIP: {{ index . 0 | Quote }}
{{ end }}
podIP: {{ PodIPWith .spec.nodeName ( or .spec.hostNetwork false ) .metadata.uid .metadata.name "default" | Quote }}
"""


def stage(name: str, *expressions: Object, kind: str = "Pod", **spec: Any) -> Object:
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": kind},
            "selector": {"matchExpressions": list(expressions)},
            **spec,
        },
    }


def has(key: str, *values: str, operator: str = "In") -> Object:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


PENDING = has(".status.phase", "Pending")
IS_RUNNING = has(".status.phase", "Running")
LIVES = has(".metadata.deletionTimestamp", operator="DoesNotExist")
READY = stage("pod-ready", LIVES, PENDING, next={"statusTemplate": RUNNING})
DELETE = stage("pod-delete", has(".metadata.deletionTimestamp", operator="Exists"), next={"delete": True})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "stages.yaml"


def write(path: Path, *stages: Object) -> Path:
    path.write_text("\n---\n".join(yaml.safe_dump(stage) for stage in stages))
    return path


async def add_nodes(cluster: Cluster, path: Path, *stages: Object) -> None:
    lives = load_stages(write(path, *stages))
    await cluster.add_nodes(1, life=lives.pods, node_life=lives.nodes)


async def phase(cluster: Cluster, name: str = "web") -> str:
    obj = await cluster.client.get_or_none("v1/Pod", name)
    return obj["status"]["phase"] if obj is not None else "gone"


async def test_pods_go_through_the_stages_of_a_file(cluster: Cluster, path: Path) -> None:
    await add_nodes(cluster, path, READY, DELETE)
    await cluster.client.create(pod("web"))
    await cluster.settle()
    status = (await cluster.client.get("v1/Pod", "web"))["status"]
    assert status["phase"] == "Running"
    assert status["hostIP"] == "198.18.0.1"
    assert status["podIP"]
    conditions = {condition["type"] for condition in status["conditions"]}
    assert conditions == {"PodScheduled", "Initialized", "Ready"}  # A strategic merge patch keeps the others.
    await cluster.client.delete("v1/Pod", "web")
    await cluster.settle()
    assert await phase(cluster) == "gone"


async def test_a_delay_lies_between_duration_and_jitter(cluster: Cluster, path: Path) -> None:
    delay = {"durationMilliseconds": 5000, "jitterDurationMilliseconds": 8000}
    await add_nodes(cluster, path, {**READY, "spec": {**READY["spec"], "delay": delay}})
    await cluster.client.create(pod("web"))
    await cluster.settle()
    await cluster.advance(4.9)
    assert await phase(cluster) == "Pending"
    await cluster.advance(3.2)
    assert await phase(cluster) == "Running"


async def test_an_annotation_states_the_delay_of_one_pod(cluster: Cluster, path: Path) -> None:
    delay = {
        "durationMilliseconds": 1000,
        "durationFrom": {"expressionFrom": '.metadata.annotations["example.com/delay"]'},
    }
    await add_nodes(cluster, path, {**READY, "spec": {**READY["spec"], "delay": delay}})
    slow = pod("slow")
    slow["metadata"]["annotations"] = {"example.com/delay": "1m"}
    await cluster.client.create(slow)
    await cluster.client.create(pod("web"))
    await cluster.settle()
    await cluster.advance(2)
    assert (await phase(cluster), await phase(cluster, "slow")) == ("Running", "Pending")
    await cluster.advance(59)
    assert await phase(cluster, "slow") == "Running"


async def test_expressions_in_cel_select_and_delay(cluster: Cluster, path: Path) -> None:
    chosen = {"cel": {"expression": "self.metadata.labels['app'] == 'chosen' && self.status.phase == 'Pending'"}}
    delay = {"durationFrom": {"cel": {"expression": "duration('10s')"}}}
    await add_nodes(cluster, path, stage("x", chosen, delay=delay, next={"statusTemplate": "phase: Failed"}))
    for name, labels in (("chosen", {"app": "chosen"}), ("other", {"app": "other"}), ("bare", {})):
        made = pod(name)
        made["metadata"]["labels"] = labels
        await cluster.client.create(made)
    await cluster.settle()
    await cluster.advance(9)
    assert await phase(cluster, "chosen") == "Pending"
    await cluster.advance(2)
    assert [await phase(cluster, name) for name in ("chosen", "other", "bare")] == ["Failed", "Pending", "Pending"]


async def test_the_weight_chooses_between_stages(cluster: Cluster, path: Path) -> None:
    fails = stage("fails", LIVES, PENDING, weight=1, next={"statusTemplate": "phase: Failed"})
    never = stage("never", LIVES, PENDING, weight=0, next={"statusTemplate": "phase: Succeeded"})
    await add_nodes(cluster, path, fails, never)
    for number in range(5):
        await cluster.client.create(pod(f"web-{number}"))
    await cluster.settle()
    assert {await phase(cluster, f"web-{number}") for number in range(5)} == {"Failed"}


async def test_steps_record_events_and_change_finalizers(cluster: Cluster, path: Path) -> None:
    steps = [
        {"event": {"type": "Normal", "reason": "Created", "message": "Created container"}},
        {"finalizers": {"add": [{"value": "example.com/hold"}]}},
        {"patch": {"root": "status", "subresource": "status", "type": "merge", "template": RUNNING}},
    ]
    frees = stage(
        "frees",
        has(".metadata.deletionTimestamp", operator="Exists"),
        has(".metadata.finalizers.[]", "example.com/hold"),
        weight=1,  # Before DELETE, which matches too.
        next={"finalizers": {"remove": [{"value": "example.com/hold"}]}},
    )
    await add_nodes(cluster, path, stage("starts", LIVES, PENDING, steps=steps), frees, DELETE)
    await cluster.client.create(pod("web"))
    await cluster.settle()
    obj = await cluster.client.get("v1/Pod", "web")
    assert obj["metadata"]["finalizers"] == ["example.com/hold"]
    assert obj["status"]["phase"] == "Running"
    events = await cluster.client.list("v1/Event", namespace="default", fields="involvedObject.kind=Pod")
    assert "Created" in {event["reason"] for event in events}
    await cluster.client.delete("v1/Pod", "web")
    await cluster.settle()
    assert await phase(cluster) == "gone"


async def test_a_stage_may_be_followed_at_once(cluster: Cluster, path: Path) -> None:
    ends = stage("ends", LIVES, IS_RUNNING, next={"statusTemplate": "phase: Succeeded"})
    await add_nodes(cluster, path, {**READY, "spec": {**READY["spec"], "immediateNextStage": True}}, ends)
    await cluster.client.create(pod("web"))
    await cluster.settle()
    assert await phase(cluster) == "Succeeded"


async def test_nodes_have_stages_too(cluster: Cluster, path: Path) -> None:
    template = """
conditions:
{{ range NodeConditions }}
{{ if eq .type "Ready" }}
- {type: Ready, status: "False", reason: {{ printf "%s-%s" "chaos" NodeName }}, message: failed}
{{ end }}
{{ end }}
"""
    fails = stage(
        "node-fails",
        has('.status.conditions.[] | select( .type == "Ready" ) | .status', "True"),
        kind="Node",
        delay={"durationMilliseconds": 30_000},
        next={"statusTemplate": template},
    )
    await add_nodes(cluster, path, fails)
    await cluster.advance(31)
    node = await cluster.client.get("v1/Node", "node-0")
    (ready,) = [condition for condition in node["status"]["conditions"] if condition["type"] == "Ready"]
    assert (ready["status"], ready["reason"]) == ("False", "chaos-node-0")


BROKEN: dict[str, tuple[Object, str]] = {
    "kind": (stage("x", kind="Secret"), "it is for Secret"),
    "operator": (stage("x", has(".a", operator="Near")), "'Near' is none of In, NotIn, Exists, DoesNotExist"),
    "values": (stage("x", has(".a")), "the operator In takes values"),
    "expression": (stage("x", has(".a |", operator="Exists")), "cannot read 'the end'"),
    "cel": (stage("x", {"cel": {"expression": "self.a =="}}), "the CEL expression 'self.a ==' cannot be compiled"),
    "field": (stage("x", LIVES, wieght=3), "the field spec.wieght is not supported"),
    "delay": (stage("x", LIVES, delay={"durationSeconds": 3}), "the field spec.delay.durationSeconds"),
    "as another": (stage("x", LIVES, next={"statusPatchAs": {"username": "ann"}}), "spec.next.statusPatchAs"),
    "impersonation": (
        stage("x", LIVES, steps=[{"patch": {"template": "", "impersonation": {"username": "ann"}}}]),
        "spec.steps.patch.impersonation is not supported",
    ),
    "template": (stage("x", LIVES, next={"statusTemplate": "{{ if .a }}"}), "has no end"),
    "patch": (stage("x", LIVES, steps=[{"patch": {"template": "", "type": "xml"}}]), "'xml' is none of"),
    "apply": (
        stage("x", LIVES, steps=[{"apply": {"template": "a: b"}}]),
        "the field spec.steps.apply is not supported",
    ),
    "reference": ({**READY, "spec": {"selector": {}}}, "has no resourceRef"),
    "nothing": ({"apiVersion": "v1", "kind": "ConfigMap"}, "has no Stage of kwok.x-k8s.io/v1alpha1"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_stage_is_refused_with_the_reason(path: Path, case: str) -> None:
    document, why = BROKEN[case]
    with pytest.raises(InvalidStage, match=why) as caught:
        load_stages(write(path, document))
    assert str(path) in str(caught.value)


def test_a_file_that_is_no_yaml_is_refused(path: Path) -> None:
    path.write_text("a: [")
    with pytest.raises(InvalidStage, match="is not YAML"):
        load_stages(path)
    with pytest.raises(InvalidStage, match="cannot be read"):
        load_stages(path / "missing")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        pytest.param(".a.b", [1], id="path"),
        pytest.param('.labels["x/y"]', ["z"], id="quoted key"),
        pytest.param(".list.[].n", [1, 2], id="iteration"),
        pytest.param(".list[1].n", [2], id="element"),
        pytest.param(".list.[] | select( .n == 2 ) | .s", ["two"], id="select"),
        pytest.param('.list.[] | select( .n == 2 and .s != "two" )', [], id="and"),
        pytest.param(".list | length", [2], id="length"),
        pytest.param(".missing.deep", [], id="missing"),
        pytest.param('.missing // "other"', ["other"], id="alternative"),
        pytest.param(".a.b.c", None, id="field of a number fails"),
        pytest.param(".a.b.c?", [], id="failure that is tolerated"),
    ],
)
def test_expressions_give_what_jq_gives(expression: str, expected: list[Any] | None) -> None:
    value = {"a": {"b": 1}, "labels": {"x/y": "z"}, "list": [{"n": 1, "s": "one"}, {"n": 2, "s": "two"}]}
    assert Query(expression).run(value) == expected


@pytest.mark.parametrize("expression", ["", ".a ..", "foo", ".[", ".a | ", "@base64"])
def test_an_expression_that_cannot_be_read_is_refused(expression: str) -> None:
    with pytest.raises(InvalidExpression):
        Query(expression)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("{{ .name }}", "web", id="field"),
        pytest.param("{{ .missing }}", "<no value>", id="missing"),
        pytest.param('{{ or .missing "x" }}{{ and .name "y" }}', "xy", id="or and"),
        pytest.param("{{- .name -}}  !", "web!", id="trimmed"),
        pytest.param("{{/* nothing */}}a", "a", id="comment"),
        pytest.param("{{ if not .missing }}no{{ else }}yes{{ end }}", "no", id="if"),
        pytest.param('{{ if eq .name "x" }}1{{ else if eq .name "web" }}2{{ else }}3{{ end }}', "2", id="else if"),
        pytest.param("{{ range $i, $v := .list }}{{ $i }}={{ $v }} {{ end }}", "0=a 1=b ", id="range"),
        pytest.param("{{ range .missing }}x{{ else }}none{{ end }}", "none", id="range over nothing"),
        pytest.param("{{ with .nested }}{{ .deep }}{{ $.name }}{{ end }}", "1web", id="with"),
        pytest.param("{{ $a := 1 }}{{ if true }}{{ $a = 2 }}{{ end }}{{ $a }}", "2", id="assignment"),
        pytest.param('{{ printf "%s-%d" .name 3 }}', "web-3", id="printf"),
        pytest.param("{{ index .nested `deep` }}{{ len .list }}", "12", id="index"),
        pytest.param("{{ (index .list 1) | Quote }}", '"b"', id="pipe"),
        pytest.param("{{ (default .nested .missing).deep }}", "1", id="field of parentheses"),
        pytest.param("{{ print (or .missing `x`) .name }}", "xweb", id="field after parentheses"),
        pytest.param("{{ YAML .nested 1 }}", "\n  deep: 1\n  ", id="yaml"),
        pytest.param('{{ default "x" .missing }}', "x", id="default"),
    ],
)
def test_templates_give_what_go_gives(text: str, expected: str) -> None:
    data = {"name": "web", "list": ["a", "b"], "nested": {"deep": 1}}
    assert GoTemplate(text).render(data, {}) == expected


@pytest.mark.parametrize(
    "text",
    ["{{ end }}", "{{ if }}x{{ end }}", "{{ .a", "{{ nosuch }}", "{{ $x }}", "{{ index .list 9 }}", "{{ .name.x }}"],
)
def test_a_template_that_cannot_be_used_is_refused(text: str) -> None:
    if text == "{{ .a":
        assert GoTemplate(text).render({}, {}) == text  # Without an end it is text, until YAML refuses it.
        return
    with pytest.raises(TemplateError):
        GoTemplate(text).render({"list": [], "name": "web"}, {})


@pytest.mark.parametrize(
    "text",
    [
        "{{ range .number }}x{{ end }}",
        "{{ range .list }}{{ range $.list }}x{{ end }}{{ end }}",
        "{{ range .number }}{{ end }}",
    ],
)
def test_a_template_takes_a_bounded_number_of_steps_whatever_the_object(text: str) -> None:
    with pytest.raises(TemplateError, match="20,000 steps"):
        GoTemplate(text).render({"number": 2**62, "list": list(range(1_000))}, {})


@pytest.mark.parametrize("expression", ["select(.list.[] == .list.[])", "select(.list.[] and .list.[])"])
def test_an_expression_compares_a_bounded_number_of_pairs(expression: str) -> None:
    assert Query(expression).run({"list": [1] * 3}) != []
    assert Query(expression).run({"list": [1] * 50_000}) is None


def test_a_long_text_is_no_duration() -> None:
    assert parse_duration("1h30m") == 5400.0
    assert parse_duration("1s" * 100_000) is None
