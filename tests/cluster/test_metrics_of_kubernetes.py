"""The metrics that Kubernetes 1.36 guarantees (STABLE and BETA): the same names, types, labels and buckets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from pinnace.cluster.cluster import running
from pinnace.cluster.settings import Settings
from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.process.exposition import LEVELS, MISSING
from pinnace.testing.cluster import Cluster

FACTS: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "metrics_1_36.json").read_text())
OF_NODES = {
    "prober_probe_total",
    "container_cpu_usage_seconds_total",
    "container_memory_working_set_bytes",
    "container_start_time_seconds",
    "node_cpu_usage_seconds_total",
    "node_memory_working_set_bytes",
    "pod_cpu_usage_seconds_total",
    "pod_memory_working_set_bytes",
    "resource_scrape_error",
}
"""On the pages of a node that runs pods (tests/node/agent/metrics/test_usage_metrics.py)."""
RARE = {
    "apiserver_authentication_config_controller_automatic_reload_last_timestamp_seconds",
    "apiserver_authentication_config_controller_automatic_reloads_total",
    "apiserver_authorization_config_controller_automatic_reload_last_timestamp_seconds",
    "apiserver_authorization_config_controller_automatic_reloads_total",
    "apiserver_flowcontrol_rejected_requests_total",
    "endpoint_slice_controller_services_count_by_traffic_distribution",
    "job_controller_pod_failures_handled_by_failure_policy_total",
    "scheduler_permit_wait_duration_seconds",
    "scheduler_unschedulable_pods",
}
"""Without a sample in this cluster: one needs an overload, a permit, a failure policy or a configuration file."""
OTHER_LABELS = {
    "apiserver_flowcontrol_current_executing_requests": {"priority_level"},
    "apiserver_flowcontrol_current_executing_seats": {"priority_level"},
}
"""Seats are counted by priority level, not by flow schema."""
POLICY: list[Object] = [
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "names"},
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
                ]
            },
            "validations": [{"expression": "object.metadata.name != 'bad'"}],
        },
    },
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "names"},
        "spec": {"policyName": "names", "validationActions": ["Deny"]},
    },
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "down"},
        "webhooks": [
            {
                "name": "down.example.com",
                "failurePolicy": "Ignore",
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "clientConfig": {"url": "https://127.0.0.1:1/"},
                "rules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["secrets"]}
                ],
            }
        ],
    },
]


def workloads() -> list[Object]:
    """Return a Service, a CronJob whose Jobs end, a Deployment with its autoscaler, and a pod that fits nowhere."""
    worker = {"containers": [{"name": "main", "image": "worker", "command": ["true"]}], "restartPolicy": "Never"}
    resources = {"requests": {"cpu": "100m"}, "limits": {"cpu": "200m"}}
    web: Object = {"containers": [{"name": "main", "image": "web", "resources": resources}]}
    specs: dict[tuple[str, str], Object] = {
        ("v1", "Service"): {"selector": {"app": "web"}, "ports": [{"port": 80}]},
        ("batch/v1", "CronJob"): {
            "schedule": "* * * * *",
            "jobTemplate": {"spec": {"ttlSecondsAfterFinished": 5, "template": {"spec": worker}}},
        },
        ("apps/v1", "Deployment"): {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": web},
        },
        ("autoscaling/v2", "HorizontalPodAutoscaler"): {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 3,
        },
        ("v1", "Pod"): {"nodeSelector": {"no": "node"}, **web},
    }
    return [
        {"apiVersion": version, "kind": kind, "metadata": {"name": "web", "namespace": "default"}, "spec": spec}
        for (version, kind), spec in specs.items()
    ]


@pytest.fixture
async def pages(cluster: Cluster) -> str:
    """The pages of a server that has done most of what is counted, as one text."""
    await cluster.add_nodes(1)
    for obj in (*POLICY, *workloads()):
        await cluster.client.create(obj)
    await cluster.advance(75)
    for kind in ("ConfigMap", "Secret"):
        with contextlib.suppress(errors.ApiError):
            await cluster.client.create(
                {"apiVersion": "v1", "kind": kind, "metadata": {"name": "bad", "namespace": "default"}}
            )
    paths = ("/livez", "/metrics", "/metrics/slis", "/metrics/resources")
    texts = [(await cluster.client.read(path, accept="*/*")).decode() for path in paths]
    return "".join(texts[1:])


def families_in(text: str) -> dict[str, Metric]:
    """Parse a page; families are named as on the page: the parser removes _total from the names of counters."""
    results: dict[str, Metric] = {}
    for family in text_string_to_metric_families(text):
        is_total = family.type == "counter" and f"# TYPE {family.name}_total counter" in text
        name = f"{family.name}_total" if is_total else family.name
        assert name not in results, f"{name} has two blocks"
        results[name] = family
    return results


def test_every_guaranteed_metric_is_provided_or_its_absence_has_a_reason() -> None:
    assert LEVELS.keys() | MISSING.keys() == FACTS.keys()
    assert not LEVELS.keys() & MISSING.keys()
    assert {name: FACTS[name]["level"] for name in LEVELS} == LEVELS
    assert [name for name in MISSING if FACTS[name]["level"] == "STABLE"] == []


def test_the_page_of_the_documentation_lists_them() -> None:
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    missing = [name for name, level in LEVELS.items() if f"| `{name}` | {level} |" not in page]
    missing += [name for name, why in MISSING.items() if f"| `{name}` | BETA | {why} |" not in page]
    assert missing == []


def test_guaranteed_metrics_have_the_types_labels_and_buckets_of_kubernetes(pages: str) -> None:
    families = families_in(pages)
    wrong = []
    for name in LEVELS.keys() - OF_NODES:
        fact, family = FACTS[name], families.get(name)
        if family is None:
            if name not in RARE:
                wrong.append((name, "missing"))
            continue
        if not family.documentation.startswith(f"[{fact['level']}] "):
            wrong.append((name, family.documentation))
        if family.type != fact["type"]:
            wrong.append((name, family.type))
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        # The queues of controllers also have the label of controller-runtime.
        labels -= {"controller"} if name.startswith("workqueue_") else set()
        if family.samples and labels != OTHER_LABELS.get(name, set(fact["labels"])):
            wrong.append((name, str(labels)))
        bounds = [float(sample.labels["le"]) for sample in family.samples if sample.name.endswith("_bucket")]
        known = fact.get("buckets")
        if known and [bound for bound in dict.fromkeys(bounds) if not math.isinf(bound)][: len(known)] != known:
            wrong.append((name, str(dict.fromkeys(bounds))))
    assert wrong == []


def test_pages_have_no_series_twice_and_histograms_that_add_up(pages: str) -> None:
    for name, family in families_in(pages).items():
        series = [(sample.name, tuple(sorted(sample.labels.items()))) for sample in family.samples]
        assert len(set(series)) == len(series), name
        if family.type != "histogram":
            continue
        buckets: dict[tuple[tuple[str, str], ...], list[float]] = {}
        counts: dict[tuple[tuple[str, str], ...], float] = {}
        for sample in family.samples:
            labels = tuple(sorted((key, value) for key, value in sample.labels.items() if key != "le"))
            if sample.name.endswith("_bucket"):
                buckets.setdefault(labels, []).append(sample.value)
            elif sample.name.endswith("_count"):
                counts[labels] = sample.value
        assert {labels: result[-1] for labels, result in buckets.items()} == counts, name
        assert all(result == sorted(result) for result in buckets.values()), name


async def test_plug_ins_are_timed_in_a_sample_that_counts_for_all_writes(cluster: Cluster) -> None:
    for number in range(33):
        await cluster.client.create(
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": f"s{number}", "namespace": "default"}}
        )
    families = families_in((await cluster.client.read("/metrics", accept="*/*")).decode())

    def count(family: str, **labels: str) -> list[float]:
        wanted = {"operation": "CREATE", "rejected": "false", **labels}
        return [
            sample.value
            for sample in families[family].samples
            if sample.name == f"{family}_count" and wanted.items() <= sample.labels.items()
        ]

    (steps,) = count("apiserver_admission_step_admission_duration_seconds", type="admit")
    assert steps >= 33
    (plugin,) = count("apiserver_admission_controller_admission_duration_seconds", name="NamespaceLifecycle")
    assert 33 <= plugin <= steps


async def test_a_scrape_of_a_whole_server_parses_and_names_its_data(tmp_path: Path) -> None:
    async with running(Settings(data_dir=tmp_path / "data", nodes=1)) as cluster:
        access = cluster.access
        url = f"{access.server}/metrics"
        headers = {"Authorization": f"Bearer {access.token}"}
        trust = ssl.create_default_context(cadata=access.ca.decode())
        async with aiohttp.ClientSession() as session, asyncio.timeout(60):
            text = ""
            while "root_ca_cert_publisher_sync_total{" not in text:
                async with session.get(url, headers=headers, ssl=trust) as response:
                    assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4; charset=utf-8")
                    text = await response.text()
    families = families_in(text)
    (size,) = families["apiserver_storage_size_bytes"].samples
    assert size.value > 4096, "the file of the data directory"
    (build,) = families["kubernetes_build_info"].samples
    assert set(build.labels) == set(FACTS["kubernetes_build_info"]["labels"])
    assert families["rest_client_requests_total"].samples
