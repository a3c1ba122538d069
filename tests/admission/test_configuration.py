"""An AdmissionConfiguration acts as in Kubernetes; settings that do not act here are refused by name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.server.in_process import PODS, InProcess

from pinnace.admission.configuration import read_plugin_settings
from pinnace.admission.plugin_table import AdmissionPluginError
from pinnace.cluster.control_plane import build
from pinnace.cluster.settings import AdmissionSettings, Settings
from pinnace.model.objects import Object
from pinnace.model.users import User
from pinnace.schema.configuration.errors import ConfigurationError
from pinnace.store.memory import MemoryStore

NAMESPACES = "/api/v1/namespaces"
HEAD = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"
POD_SECURITY = """
- name: PodSecurity
  configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults: {enforce: baseline, enforce-version: v1.30, warn: restricted}
    exemptions: {usernames: [ada], namespaces: [free], runtimeClasses: [vm]}
"""
QUOTA = """
- name: ResourceQuota
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: ResourceQuotaConfiguration
    limitedResources:
    - {resource: persistentvolumeclaims, matchContains: [.storageclass.storage.k8s.io/requests.storage]}
"""
EVENTS = "eventratelimit.admission.k8s.io/v1alpha1"
TOLERATIONS = "podtolerationrestriction.admission.k8s.io/v1alpha1"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
PRIVILEGED: Object = {
    "spec": {"containers": [{"name": "c", "image": "i", "securityContext": {"privileged": True}}]},
}


def pod(name: str, **spec: object) -> Object:
    return {"metadata": {"name": name}, "spec": {**PRIVILEGED["spec"], **spec}}


@asynccontextmanager
async def configured(directory: Path, plugins: str) -> AsyncIterator[InProcess]:
    path = directory / "admission.yaml"
    path.write_text(HEAD + plugins)
    plane = await build(Settings(admission=AdmissionSettings(configuration=path)), MemoryStore())
    server = InProcess(plane)
    for name in ("default", "free"):
        await server.made(NAMESPACES, {"metadata": {"name": name}})
    yield server
    await plane.close()


async def test_defaults_of_pod_security_hold_where_a_namespace_has_no_labels(tmp_path: Path) -> None:
    async with configured(tmp_path, POD_SECURITY) as server:
        refused = await server.post(PODS, pod("a"))
        assert refused.status == 403
        assert 'violates PodSecurity "baseline:v1.30": privileged (container "c" must not set' in refused.message
        plain = {"metadata": {"name": "b"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        made = await server.post(PODS, plain)
        assert made.status == 201
        assert "would violate PodSecurity" in made.header("warning")[0]
        assert "restricted:latest" in made.header("warning")[0]
        labels = {"pod-security.kubernetes.io/enforce": "privileged"}
        await server.made(NAMESPACES, {"metadata": {"name": "open", "labels": labels}})
        assert (await server.post("/api/v1/namespaces/open/pods", pod("a"))).status == 201


async def test_exempt_namespaces_users_and_runtime_classes_are_not_checked(tmp_path: Path) -> None:
    async with configured(tmp_path, POD_SECURITY) as server:
        assert (await server.post("/api/v1/namespaces/free/pods", pod("a"))).status == 201
        ada = InProcess(server.plane, User("ada", ("system:masters",)))
        assert (await ada.post(PODS, pod("a"))).status == 201
        runtime_class = {"metadata": {"name": "vm"}, "handler": "vm"}
        await server.made("/apis/node.k8s.io/v1/runtimeclasses", runtime_class)
        assert (await server.post(PODS, pod("b", runtimeClassName="vm"))).status == 201
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        reply = await server.put(f"{NAMESPACES}/free", {"metadata": {"name": "free", "labels": labels}})
        ignored = "the policy (enforce=restricted:v1.30) will be ignored"
        warning = f'namespace \\"free\\" is exempt from Pod Security, and {ignored}'
        assert any(warning in text for text in reply.header("warning")), reply.headers


async def test_a_limited_resource_needs_a_quota(tmp_path: Path) -> None:
    async with configured(tmp_path, QUOTA) as server:

        def claim(name: str, storage_class: str) -> Object:
            resources = {"requests": {"storage": "1Gi"}}
            spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": storage_class, "resources": resources}
            return {"metadata": {"name": name}, "spec": spec}

        refused = await server.post(CLAIMS, claim("a", "gold"))
        assert refused.status == 403
        needed = "insufficient quota to consume: gold.storageclass.storage.k8s.io/requests.storage"
        assert refused.message == f'persistentvolumeclaims "a" is forbidden: {needed}'
        hard = {"gold.storageclass.storage.k8s.io/requests.storage": "5Gi"}
        await server.made(
            "/api/v1/namespaces/default/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": hard}}
        )
        assert (await server.post(CLAIMS, claim("a", "gold"))).status == 201
        assert (await server.post(CLAIMS, claim("b", "silver"))).status == 403
        assert (await server.post(PODS, pod("a"))).status == 201


def test_a_plug_in_may_have_a_file_of_its_own(tmp_path: Path) -> None:
    own = POD_SECURITY.partition("configuration:")[2]
    (tmp_path / "own.yaml").write_text("\n".join(line.removeprefix("    ") for line in own.splitlines()))
    (tmp_path / "admission.yaml").write_text(HEAD + "- {name: PodSecurity, path: own.yaml}\n")
    assert str(read_plugin_settings(tmp_path / "admission.yaml").pod_security.enforce) == "baseline:v1.30"


def _plugin(name: str, kind: str, fields: str, group: str = "apiserver.config.k8s.io/v1") -> str:
    return f"- {{name: {name}, configuration: {{apiVersion: {group}, kind: {kind}, {fields}}}}}"


@pytest.mark.parametrize(
    ("plugins", "error"),
    [
        ("- {name: LimitRanger, path: x}", 'plugins[0].name: Invalid value: "LimitRanger": this plug-in has no'),
        ("- {name: PodSecurity}\n- {name: PodSecurity}", 'plugins[1].name: Duplicate value: "PodSecurity"'),
        ("- {name: PodSecurity, path: missing}", "missing cannot be read: No such file or directory"),
        (
            _plugin("PodSecurity", "PodSecurityConfiguration", "defaults: {enforce: none}", f"{'pod-security'}/v1"),
            "expected kind PodSecurityConfiguration of apiVersion pod-security.admission.config.k8s.io/v1",
        ),
        (
            _plugin(
                "PodSecurity",
                "PodSecurityConfiguration",
                "defaults: {enforce: none, warn-version: '1.3'}, exemptions: {usernames: [''], namespaces: [a, a]}",
                "pod-security.admission.config.k8s.io/v1",
            ),
            '[defaults.enforce: Invalid value: "none": must be one of privileged, baseline, restricted, '
            'defaults.warn-version: Invalid value: "1.3": must be "latest" or "v1.x", exemptions.namespaces[1]: '
            'Duplicate value: "a", exemptions.usernames[0]: Invalid value: "": username must not be empty]',
        ),
        (
            _plugin("ResourceQuota", "ResourceQuotaConfiguration", "limitedResources: [{matchContains: [a]}]"),
            "limitedResources[0].resource: Required value",
        ),
        (
            _plugin("ValidatingAdmissionWebhook", "WebhookAdmissionConfiguration", "kubeConfigFile: /a"),
            'kubeConfigFile: Invalid value: "/a": webhooks are called without credentials here',
        ),
        (
            _plugin("ResourceQuota", "ResourceQuotaConfiguration", "limited: []"),
            'strict decoding error: unknown field "limited"',
        ),
        (
            _plugin("EventRateLimit", "Configuration", "limits: []", EVENTS),
            "limits: Invalid value: []: must not be empty",
        ),
        (
            _plugin(
                "EventRateLimit", "Configuration", "limits: [{type: Pod, qps: 1}, {type: User, cacheSize: -1}]", EVENTS
            ),
            '[limits[0].type: Unsupported value: "Pod": supported values: "Namespace", "Server", "SourceAndObject", '
            '"User", '
            "limits[0].burst: Invalid value: 0: must be positive, limits[1].burst: Invalid value: 0: must be positive, "
            "limits[1].qps: Invalid value: 0: must be positive, limits[1].cacheSize: Invalid value: -1: must not be "
            "negative]",
        ),
        (
            _plugin("PodTolerationRestriction", "Configuration", "default: [{key: a b}]", TOLERATIONS),
            'podtolerationrestriction.default[0].key: Invalid value: "a b": name part must consist of',
        ),
        (
            "- {name: PodNodeSelector, configuration: {podNodeSelectorPluginConfig: {team: 'a'}}}",
            'podNodeSelectorPluginConfig[team]: Invalid value: "a": invalid selector: [a]',
        ),
        ("- {name: PodNodeSelector, configuration: {team: a}}", 'strict decoding error: unknown field "team"'),
        ("- {name: ImagePolicyWebhook}", "imagePolicy.kubeConfigFile: Required value"),
        (
            "- {name: ImagePolicyWebhook, configuration: {imagePolicy: {kubeConfigFile: gone, allowTTL: 9000}}}",
            "[imagePolicy.allowTTL: Invalid value: 9000: valid value is between 1 and 1800, in seconds, "
            'imagePolicy.kubeConfigFile: Invalid value: "gone": ',
        ),
    ],
)
def test_settings_that_cannot_act_are_refused(tmp_path: Path, plugins: str, error: str) -> None:
    path = tmp_path / "admission.yaml"
    path.write_text(HEAD + plugins)
    with pytest.raises(ConfigurationError) as refused:
        read_plugin_settings(path)
    assert error in str(refused.value)


@pytest.mark.parametrize(
    ("enabled", "error"),
    [
        (
            "EventRateLimit",
            'couldn\'t init admission plugin "EventRateLimit": limits: Invalid value: []: must not be empty',
        ),
        ("ImagePolicyWebhook", 'couldn\'t init admission plugin "ImagePolicyWebhook": no config specified'),
    ],
)
async def test_some_plug_ins_need_settings(enabled: str, error: str) -> None:
    with pytest.raises(AdmissionPluginError) as refused:
        await build(Settings(admission=AdmissionSettings(enabled=frozenset((enabled,)))), MemoryStore())
    assert str(refused.value) == error
