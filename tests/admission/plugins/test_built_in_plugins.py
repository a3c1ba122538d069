"""The built-in admission plug-ins, through the front door: what they fill in, and the words in which they refuse."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.server.in_process import CONFIG_MAPS, PODS, InProcess, Object, control_plane, pod

from pinnace.cluster.control_plane import build
from pinnace.cluster.settings import Settings
from pinnace.model.users import User
from pinnace.server.bootstrap.creation import bootstrap
from pinnace.store.memory import MemoryStore

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
INGRESSES = "/apis/networking.k8s.io/v1/namespaces/default/ingresses"
LIMIT_RANGES = "/api/v1/namespaces/default/limitranges"
PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
RUNTIME_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
SERVICE_ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


def named(kind: str, api_version: str, name: str, *, annotations: Any = None, **rest: Any) -> Object:
    metadata = {"name": name} | ({"annotations": annotations} if annotations else {})
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **rest}


def claim(name: str = "data", size: str = "1Gi", **spec: Any) -> Object:
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **spec}
    return named("PersistentVolumeClaim", "v1", name, spec=wanted)


@pytest.fixture
async def strict_api() -> AsyncIterator[InProcess]:
    store = MemoryStore()
    plane = await build(Settings(), store, needs_service_accounts=True)
    await bootstrap(plane.foundation, plane.local(), ("127.0.0.1", 6443))
    yield InProcess(plane)
    await store.close()


async def test_a_pod_stays_five_minutes_on_a_lost_node(api: InProcess) -> None:
    made = await api.made(PODS, pod())
    assert made["spec"]["tolerations"] == [
        {
            "key": "node.kubernetes.io/not-ready",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 300,
        },
        {
            "key": "node.kubernetes.io/unreachable",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 300,
        },
    ]


async def test_a_pod_that_tolerates_everything_is_left_alone(api: InProcess) -> None:
    made = await api.made(PODS, pod(tolerations=[{"operator": "Exists"}]))
    assert made["spec"]["tolerations"] == [{"operator": "Exists"}]


async def test_a_pod_gets_the_number_of_its_class(api: InProcess) -> None:
    body = named("PriorityClass", "scheduling.k8s.io/v1", "high", value=1000, preemptionPolicy="Never")
    await api.made(PRIORITY_CLASSES, body)
    spec = (await api.made(PODS, pod(priorityClassName="high")))["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (1000, "Never")


async def test_a_pod_without_a_class_gets_the_default(api: InProcess) -> None:
    spec = (await api.made(PODS, pod("one")))["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    body = named("PriorityClass", "scheduling.k8s.io/v1", "usual", value=7, globalDefault=True)
    await api.made(PRIORITY_CLASSES, body)
    spec = (await api.made(PODS, pod("two")))["spec"]
    assert (spec["priorityClassName"], spec["priority"]) == ("usual", 7)
    second = await api.post(PRIORITY_CLASSES, {**body, "metadata": {"name": "other"}})
    assert second.message == (
        'priorityclasses.scheduling.k8s.io "other" is forbidden: '
        "PriorityClass usual is already marked as default. Only one default can exist"
    )


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"priorityClassName": "none"}, "no PriorityClass with name none was found"),
        (
            {"priority": 5},
            "the integer value of priority (5) must not be provided in pod spec; "
            "priority admission controller computed 0 from the given PriorityClass name",
        ),
        ({"runtimeClassName": "none"}, 'pod rejected: RuntimeClass "none" not found'),
        (
            {"overhead": {"cpu": "1"}},
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
        ),
    ],
    ids=["no class", "own number", "no runtime", "own overhead"],
)
async def test_a_pod_is_refused(api: InProcess, spec: Object, message: str) -> None:
    reply = await api.post(PODS, pod(**spec))
    assert (reply.status, reply.message) == (403, f'pods "web" is forbidden: {message}')


async def test_a_pod_pays_for_its_runtime_and_goes_where_it_runs(api: InProcess) -> None:
    scheduling = {"nodeSelector": {"sandbox": "yes"}, "tolerations": [{"key": "sandbox", "operator": "Exists"}]}
    body = named(
        "RuntimeClass",
        "node.k8s.io/v1",
        "box",
        handler="box",
        overhead={"podFixed": {"cpu": "250m"}},
        scheduling=scheduling,
    )
    await api.made(RUNTIME_CLASSES, body)
    spec = (await api.made(PODS, pod(runtimeClassName="box")))["spec"]
    assert (spec["overhead"], spec["nodeSelector"]) == ({"cpu": "250m"}, {"sandbox": "yes"})
    assert {"key": "sandbox", "operator": "Exists"} in spec["tolerations"]
    conflicting = await api.post(PODS, pod("other", runtimeClassName="box", nodeSelector={"sandbox": "no"}))
    assert conflicting.message.endswith(
        "conflict: runtimeClass.scheduling.nodeSelector[sandbox] = yes; pod.spec.nodeSelector[sandbox] = no"
    )


async def test_claims_and_ingresses_get_the_default_class(api: InProcess) -> None:
    for name in ("one", "two"):
        mark = {"storageclass.kubernetes.io/is-default-class": "true"}
        body = named("StorageClass", "storage.k8s.io/v1", name, annotations=mark, provisioner="example.com/disk")
        await api.made("/apis/storage.k8s.io/v1/storageclasses", body)
    mark = {"ingressclass.kubernetes.io/is-default-class": "true"}
    body = named("IngressClass", "networking.k8s.io/v1", "web", annotations=mark, spec={"controller": "example.com/x"})
    await api.made("/apis/networking.k8s.io/v1/ingressclasses", body)
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    ingress = named("Ingress", "networking.k8s.io/v1", "front", spec={"defaultBackend": backend})
    assert (await api.made(INGRESSES, ingress))["spec"]["ingressClassName"] == "web"
    made = await api.made(CLAIMS, claim())
    assert made["spec"]["storageClassName"] == "one"
    assert made["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    assert (await api.made(CLAIMS, claim("none", storageClassName="")))["spec"]["storageClassName"] == ""


async def test_a_claim_grows_only_where_it_may(api: InProcess) -> None:
    await api.made(CLAIMS, claim(storageClassName="slow"))
    larger = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    refused = await api.patch(f"{CLAIMS}/data", larger)
    assert "Only bound persistent volume claims can be expanded" in refused.message or refused.status == 422


async def test_a_new_node_is_not_ready(api: InProcess) -> None:
    made = await api.made("/api/v1/nodes", named("Node", "v1", "n1"))
    assert made["spec"]["taints"] == [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]


async def test_a_limit_range_gives_defaults_and_says_so(api: InProcess) -> None:
    limit = {"type": "Container", "default": {"cpu": "500m"}, "defaultRequest": {"cpu": "100m", "memory": "1Mi"}}
    await api.made(LIMIT_RANGES, named("LimitRange", "v1", "limits", spec={"limits": [limit]}))
    made = await api.made(PODS, pod())
    assert made["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "500m"},
        "requests": {"cpu": "100m", "memory": "1Mi"},
    }
    assert made["metadata"]["annotations"]["kubernetes.io/limit-ranger"] == (
        "LimitRanger plugin set: cpu, memory request for container main; cpu limit for container main"
    )


@pytest.mark.parametrize(
    ("limit", "resources", "message"),
    [
        (
            {"type": "Container", "max": {"memory": "1Gi"}},
            {},
            "maximum memory usage per Container is 1Gi.  No limit is specified",
        ),
        (
            {"type": "Pod", "max": {"cpu": "1"}},
            {"limits": {"cpu": "2"}},
            "maximum cpu usage per Pod is 1, but limit is 2",
        ),
        (
            {"type": "Container", "min": {"cpu": "1"}},
            {"requests": {"cpu": "500m"}},
            "minimum cpu usage per Container is 1, but request is 500m",
        ),
        (
            {"type": "Pod", "maxLimitRequestRatio": {"cpu": "2"}},
            {"requests": {"cpu": "1"}, "limits": {"cpu": "3"}},
            "cpu max limit to request ratio per Pod is 2, but provided ratio is 3.000000",
        ),
    ],
    ids=["nothing said", "too much", "too little", "too far apart"],
)
async def test_a_limit_range_refuses(api: InProcess, limit: Object, resources: Object, message: str) -> None:
    if limit["type"] == "Container" and "max" in limit:
        limit = {**limit, "type": "Pod"}
        message = message.replace("Container", "Pod")
    await api.made(LIMIT_RANGES, named("LimitRange", "v1", "limits", spec={"limits": [limit]}))
    body = pod()
    body["spec"]["containers"][0]["resources"] = resources
    reply = await api.post(PODS, body)
    assert reply.message == f'pods "web" is forbidden: {message}'
    other = await api.post("/api/v1/namespaces/kube-public/pods", body)
    assert other.status == 201


async def test_a_limit_range_bounds_claims(api: InProcess) -> None:
    limit = {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}, "min": {"storage": "1Mi"}}
    await api.made(LIMIT_RANGES, named("LimitRange", "v1", "limits", spec={"limits": [limit]}))
    reply = await api.post(CLAIMS, claim(size="2Gi"))
    assert reply.message == (
        'persistentvolumeclaims "data" is forbidden: '
        "maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi"
    )


async def test_a_pod_runs_as_an_account_that_exists(strict_api: InProcess) -> None:
    reply = await strict_api.post(PODS, pod())
    assert reply.message == (
        'pods "web" is forbidden: error looking up service account default/default: serviceaccount "default" not found'
    )


async def test_a_pod_finds_its_token_where_all_clients_look(strict_api: InProcess) -> None:
    account = named("ServiceAccount", "v1", "default", imagePullSecrets=[{"name": "registry"}])
    await strict_api.made(SERVICE_ACCOUNTS, account)
    spec = (await strict_api.made(PODS, pod()))["spec"]
    assert (spec["serviceAccountName"], spec["serviceAccount"]) == ("default", "default")
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    volume = spec["volumes"][0]
    assert volume["name"].startswith("kube-api-access-")
    assert volume["projected"] == {
        "defaultMode": 420,
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {
                "downwardAPI": {
                    "items": [
                        {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
                    ]
                }
            },
        ],
    }
    assert spec["containers"][0]["volumeMounts"] == [
        {"name": volume["name"], "readOnly": True, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
    ]


@pytest.mark.parametrize(("account_says", "pod_says", "is_mounted"), [(False, None, False), (False, True, True)])
async def test_the_pod_has_the_last_word_on_its_token(
    strict_api: InProcess, account_says: bool, pod_says: bool | None, is_mounted: bool
) -> None:
    account = named("ServiceAccount", "v1", "default", automountServiceAccountToken=account_says)
    await strict_api.made(SERVICE_ACCOUNTS, account)
    more: Any = {} if pod_says is None else {"automountServiceAccountToken": pod_says}
    assert ("volumes" in (await strict_api.made(PODS, pod(**more)))["spec"]) is is_mounted


async def test_an_account_may_be_held_to_its_secrets(strict_api: InProcess) -> None:
    mark = {"kubernetes.io/enforce-mountable-secrets": "true"}
    await strict_api.made(SERVICE_ACCOUNTS, named("ServiceAccount", "v1", "default", annotations=mark))
    reply = await strict_api.post(PODS, pod(volumes=[{"name": "s", "secret": {"secretName": "other"}}]))
    assert reply.message == (
        'pods "web" is forbidden: volume with secret.secretName="other" is not allowed because '
        "service account default does not reference that secret"
    )


@pytest.mark.parametrize(
    ("target", "body", "message"),
    [
        (PODS, pod(nodeName="n1"), 'node "n1" can only create mirror pods'),
        (
            "/api/v1/nodes",
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n2"}},
            'node "n1" is not allowed to modify node "n2"',
        ),
        (
            "/api/v1/nodes",
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": "n1", "labels": {"node-restriction.kubernetes.io/a": "b"}},
            },
            'node "n1" is not allowed to set the following labels: node-restriction.kubernetes.io/a',
        ),
    ],
    ids=["a pod of its own", "another node", "a label that is not its own"],
)
async def test_a_node_keeps_to_its_own(api: InProcess, target: str, body: Object, message: str) -> None:
    node = InProcess(api.plane, User("system:node:n1", ("system:nodes", "system:authenticated")))
    reply = await node.post(target, body)
    assert reply.status == 403
    assert reply.message.endswith(message)


async def test_a_node_gets_tokens_for_its_own_pods_alone(api: InProcess) -> None:
    node = InProcess(api.plane, User("system:node:n1", ("system:nodes", "system:authenticated")))
    await api.made(SERVICE_ACCOUNTS, named("ServiceAccount", "v1", "robot"))
    volumes = [{"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}]
    here = await api.made(PODS, pod("here", nodeName="n1", serviceAccountName="robot", volumes=volumes))
    there = await api.made(PODS, pod("there", nodeName="n2", serviceAccountName="robot"))

    async def answer(**bound: str) -> str:
        reference = {"boundObjectRef": {"apiVersion": "v1", **bound}} if bound else {}
        reply = await node.post(f"{SERVICE_ACCOUNTS}/robot/token", {"spec": {"audiences": [], **reference}})
        return "" if reply.status == 201 else reply.message.partition("forbidden: ")[2]

    own, other = here["metadata"]["uid"], there["metadata"]["uid"]
    assert await answer(kind="Pod", name="here", uid=own) == ""
    assert await answer() == "node requested token not bound to a pod"
    assert await answer(kind="Node", name="n1", uid=own) == "node requested token not bound to a pod"
    assert await answer(kind="Pod", name="here") == "node requested token with a pod binding without a uid"
    assert (await answer(kind="Pod", name="here", uid=other)).startswith("the UID in the bound object reference")
    assert (await answer(kind="Pod", name="there", uid=other)).endswith("pod scheduled on a different node")


async def test_a_node_gets_tokens_only_for_accounts_that_the_volumes_of_its_pods_name(api: InProcess) -> None:
    node = InProcess(api.plane, User("system:node:n1", ("system:nodes", "system:authenticated")))
    await api.made(SERVICE_ACCOUNTS, named("ServiceAccount", "v1", "robot"))
    for audience in ("inline", "claimed", "ephemeral"):
        driver = named(
            "CSIDriver", "storage.k8s.io/v1", f"{audience}.csi", spec={"tokenRequests": [{"audience": audience}]}
        )
        await api.made("/apis/storage.k8s.io/v1/csidrivers", driver)
        source = {"csi": {"driver": f"{audience}.csi", "volumeHandle": "h"}}
        size = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
        await api.made("/api/v1/persistentvolumes", named("PersistentVolume", "v1", audience, spec={**size, **source}))
    template = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    for claim, volume in (("data", "claimed"), ("here-own", "ephemeral")):
        body = named("PersistentVolumeClaim", "v1", claim, spec={**template, "volumeName": volume})
        await api.made("/api/v1/namespaces/default/persistentvolumeclaims", body)
    projected = [{"serviceAccountToken": {"path": "a"}}, {"serviceAccountToken": {"path": "b", "audience": "vault"}}]
    volumes: list[Object] = [
        {"name": "tokens", "projected": {"sources": projected}},
        {"name": "inline", "csi": {"driver": "inline.csi"}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "own", "ephemeral": {"volumeClaimTemplate": {"spec": template}}},
    ]
    uids = {}
    missing = {"name": "gone", "persistentVolumeClaim": {"claimName": "gone"}}
    for name, mounted in (("here", volumes), ("bare", []), ("broken", [missing, *volumes[:1]])):
        made = await api.made(PODS, pod(name, nodeName="n1", serviceAccountName="robot", volumes=mounted))
        uids[name] = made["metadata"]["uid"]

    async def answer(name: str, *audiences: str) -> str:
        bound = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uids[name]}
        spec = {"audiences": list(audiences), "boundObjectRef": bound}
        reply = await node.post(f"{SERVICE_ACCOUNTS}/robot/token", {"spec": spec})
        return "" if reply.status == 201 else reply.message.partition("forbidden: ")[2]

    for audiences in ([], ["vault"], ["inline"], ["claimed"], ["ephemeral"]):
        assert await answer("here", *audiences) == "", audiences
    refused = 'audience "{}" not found in pod spec volume, '
    refused += "system:node:n1 is not authorized to request tokens for this audience"
    assert await answer("here", "bank") == refused.format("bank")
    assert await answer("bare", "vault") == refused.format("vault")
    assert await answer("bare") == refused.format("")
    assert await answer("here", "vault", "inline") == "node may only request 0 or 1 audiences"
    assert await answer("broken", "vault") == ""
    assert await answer("broken", "x") == 'error validating audience "x": persistentvolumeclaim "gone" not found'

    rule = {"apiGroups": [""], "resources": ["bank"], "verbs": ["request-serviceaccounts-token-audience"]}
    rbac = "rbac.authorization.k8s.io"
    await api.made(f"/apis/{rbac}/v1/clusterroles", named("ClusterRole", f"{rbac}/v1", "bankers", rules=[rule]))
    binding = named(
        "ClusterRoleBinding",
        f"{rbac}/v1",
        "bankers",
        roleRef={"apiGroup": rbac, "kind": "ClusterRole", "name": "bankers"},
        subjects=[{"kind": "Group", "apiGroup": rbac, "name": "system:nodes"}],
    )
    await api.made(f"/apis/{rbac}/v1/clusterrolebindings", binding)
    assert await answer("here", "bank") == ""
    assert await answer("here", "post") == refused.format("post")


async def test_an_older_kubernetes_gives_a_node_tokens_for_anyone() -> None:
    async with control_plane(settings=Settings(kubernetes_version="1.32")) as api:
        node = InProcess(api.plane, User("system:node:n1", ("system:nodes", "system:authenticated")))
        await api.made(SERVICE_ACCOUNTS, named("ServiceAccount", "v1", "robot"))
        made = await api.made(PODS, pod("here", nodeName="n1", serviceAccountName="robot"))
        bound = {"apiVersion": "v1", "kind": "Pod", "name": "here", "uid": made["metadata"]["uid"]}
        spec = {"audiences": ["bank", "vault"], "boundObjectRef": bound}
        assert (await node.post(f"{SERVICE_ACCOUNTS}/robot/token", {"spec": spec})).status == 201


async def test_an_owner_is_blocked_only_by_those_who_could_keep_it(api: InProcess) -> None:
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "get"]}]
    role = named("ClusterRole", "rbac.authorization.k8s.io/v1", "writer", rules=rules)
    await api.made("/apis/rbac.authorization.k8s.io/v1/clusterroles", role)
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "writer"}
    binding = named(
        "ClusterRoleBinding",
        "rbac.authorization.k8s.io/v1",
        "writer",
        roleRef=reference,
        subjects=[{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "joe"}],
    )
    await api.made("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
    joe = InProcess(api.plane, User("joe", ("system:authenticated",)))
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "1", "blockOwnerDeletion": True}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "ownerReferences": [owner]}}
    reply = await joe.post(CONFIG_MAPS, body)
    assert reply.message == (
        'configmaps "a" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource '
        "you can't set finalizers on: , <nil>"
    )
    assert (await api.post(CONFIG_MAPS, body)).status == 201


def device_claim(**requested: Any) -> Object:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpus", **requested}}
    return named("ResourceClaim", "resource.k8s.io/v1", "watch", spec={"devices": {"requests": [request]}})


async def test_devices_in_use_are_for_namespaces_with_admin_access(api: InProcess) -> None:
    devices = "/apis/resource.k8s.io/v1/namespaces/default"
    refused = await api.post(f"{devices}/resourceclaims", device_claim(adminAccess=True))
    message = (
        "spec.devices.requests[0].adminAccess: Forbidden: admin access to devices requires the "
        "`resource.kubernetes.io/admin-access: true` label on the containing namespace"
    )
    assert refused.message == f'ResourceClaim.resource.k8s.io "watch" is invalid: {message}'
    spec = device_claim(adminAccess=True)["spec"]
    template = named("ResourceClaimTemplate", "resource.k8s.io/v1", "watch", spec={"spec": spec})
    assert message in (await api.post(f"{devices}/resourceclaimtemplates", template)).message
    assert (await api.post(f"{devices}/resourceclaims?dryRun=All", device_claim(adminAccess=False))).status == 201
    label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    assert (await api.patch("/api/v1/namespaces/default", label)).status == 200
    assert (await api.post(f"{devices}/resourceclaims", device_claim(adminAccess=True))).status == 201
