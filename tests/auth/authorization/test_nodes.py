"""The node authorizer: a node may use its own objects and those of its pods, and none of other nodes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.auth.objects_in_memory import Kept, Object, rule

from pinnace.auth.authorization.authorizers import Always
from pinnace.auth.authorization.nodes import BoundObjects, Enforcement, NodeAuthorizer
from pinnace.auth.authorization.rules import Rule
from pinnace.model.authorization import ALLOWED, Action
from pinnace.model.users import User

NODE = User("system:node:n1", ("system:nodes",))
RULES = [
    Rule.of(rule("get list watch", "services nodes pods")),
    Rule.of(rule("create delete", "pods")),
    Rule.of(rule("patch update", "pods/status")),
    Rule.of(rule("get list watch", "secrets configmaps")),
]


def pod(name: str, node: str, *, namespace: str = "shop", **more: Any) -> Object:
    metadata = {"name": name, "namespace": namespace, "annotations": more.pop("annotations", {})}
    return {"metadata": metadata, "spec": {"nodeName": node, "serviceAccountName": "robot", **more}}


WEB = pod(
    "web",
    "n1",
    imagePullSecrets=[{"name": "pull"}],
    containers=[
        {
            "env": [{"valueFrom": {"secretKeyRef": {"name": "env"}}}, {"value": "x"}],
            "envFrom": [{"configMapRef": {"name": "settings"}}],
        }
    ],
    volumes=[
        {"name": "a", "secret": {"secretName": "mounted"}},
        {"name": "b", "projected": {"sources": [{"configMap": {"name": "projected"}}]}},
        {"name": "c", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "d", "ephemeral": {}},
        {"name": "e", "csi": {"nodePublishSecretRef": {"name": "csi"}}},
    ],
)
NEIGHBOUR = pod("db", "n2", volumes=[{"name": "a", "secret": {"secretName": "neighbour"}}])
CLAIM = {"metadata": {"name": "data", "namespace": "shop"}, "spec": {"volumeName": "pv-1"}}


SLICES = [{"metadata": {"name": f"slice-{node}"}, "spec": {"nodeName": node}} for node in ("n1", "n2")]
ATTACHMENTS = [{"metadata": {"name": f"attached-{node}"}, "spec": {"nodeName": node}} for node in ("n1", "n2")]
REQUESTS = [
    {"metadata": {"name": f"req-{node}", "namespace": "shop"}, "spec": {"nodeName": node}} for node in ("n1", "n2")
]


def nodes(*pods: Object) -> NodeAuthorizer:
    return following(Kept(*pods))


def following(
    pods: Kept,
    *,
    policies: Kept | None = None,
    may_enforce: bool = True,
    has_selectors: bool = True,
    has_certificates: bool = True,
) -> NodeAuthorizer:
    return NodeAuthorizer(
        rules=RULES,
        pods=pods,
        claims=Kept(CLAIM),
        bound=BoundObjects(Kept(*SLICES), Kept(*ATTACHMENTS), Kept(*REQUESTS) if has_certificates else None),
        enforcement=Enforcement(policies or Kept(), Always(ALLOWED) if may_enforce else Always()),
        has_selectors=has_selectors,
    )


def on_slices(verb: str, name: str = "", fields: str = "") -> Action:
    return on(verb, "resourceslices", name, namespace="", group="resource.k8s.io", fields=fields)


def on_attachments(verb: str, name: str = "") -> Action:
    return on(verb, "volumeattachments", name, namespace="", group="storage.k8s.io")


def on_certificate_requests(verb: str, name: str = "", fields: str = "") -> Action:
    return on(verb, "podcertificaterequests", name, group="certificates.k8s.io", fields=fields)


def on(verb: str, resource: str, name: str = "", *, namespace: str = "shop", **more: str) -> Action:
    plural, _, subresource = resource.partition("/")
    return Action(verb, resource=plural, subresource=subresource, namespace=namespace, name=name, **more)


@pytest.mark.parametrize(
    ("action", "allowed"),
    [
        *((on("get", "secrets", name), True) for name in ("pull", "env", "mounted", "csi")),
        *((on("watch", "configmaps", name), True) for name in ("settings", "projected")),
        (on("get", "persistentvolumeclaims", "data"), True),
        (on("get", "persistentvolumeclaims", "web-d"), True),
        (on("update", "persistentvolumeclaims/status", "data"), True),
        (on("get", "persistentvolumes", "pv-1", namespace=""), True),
        (on("get", "persistentvolumes", "pv-2", namespace=""), False),
        (on("create", "serviceaccounts/token", "robot"), True),
        (on("create", "serviceaccounts/token", "admin"), False),
        (on("get", "secrets", "neighbour"), False),
        (on("get", "secrets", "mounted", namespace="other"), False),
        (on("list", "secrets"), False),
        (on("update", "secrets", "mounted"), False),
        (on("get", "nodes", "n1", namespace=""), True),
        (on("get", "nodes", "n2", namespace=""), False),
        (on("list", "nodes", namespace=""), False),
        (on("patch", "nodes/status", "n1", namespace=""), True),
        (on("delete", "nodes", "n1", namespace=""), False),
        (on("get", "pods", "web"), True),
        (on("get", "pods", "db"), False),
        (on("list", "pods", namespace=""), False),
        (on("list", "pods", namespace="", fields="spec.nodeName=n1"), True),
        (on("watch", "pods", namespace="", fields="spec.nodeName=n2"), False),
        (on("patch", "pods/status", "web"), True),
        (on("list", "services", namespace=""), True),
        (on("delete", "services", "web"), False),
        (on("update", "leases", "n1", namespace="kube-node-lease", group="coordination.k8s.io"), True),
        (on("update", "leases", "n2", namespace="kube-node-lease", group="coordination.k8s.io"), False),
        (on("get", "leases", "n1", namespace="kube-system", group="coordination.k8s.io"), False),
        (on_slices("create"), True),
        *((on_slices(verb, "slice-n1"), True) for verb in ("get", "update", "patch", "delete")),
        (on_slices("delete", "slice-n2"), False),
        (on_slices("list"), False),
        (on_slices("list", fields="spec.nodeName=n1"), True),
        (on_slices("deletecollection", fields="spec.nodeName=n2"), False),
        (on_attachments("get", "attached-n1"), True),
        (on_attachments("get", "attached-n2"), False),
        (on_attachments("list"), False),
        (on_certificate_requests("create"), True),
        (on_certificate_requests("get", "req-n1"), True),
        (on_certificate_requests("get", "req-n2"), False),
        (on_certificate_requests("watch", fields="spec.nodeName=n1"), True),
        (on_certificate_requests("list", fields="spec.nodeName=n2"), False),
        (on_certificate_requests("delete", "req-n1"), False),
        (Action("get", path="/metrics"), False),
    ],
    ids=lambda value: f"{value.verb} {value.resource} {value.name}" if isinstance(value, Action) else "",
)
def test_a_node_reaches_what_is_its_own(action: Action, allowed: bool) -> None:
    assert nodes(WEB, NEIGHBOUR).decide(NODE, action).is_allowed is allowed


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        (on("get", "secrets", "neighbour"), "no relationship found between node 'n1' and this object"),
        (on("list", "persistentvolumes", namespace=""), "can only get individual resources of this type"),
        (on("update", "secrets", "mounted"), "can only read resources of this type"),
        (on("list", "serviceaccounts"), "can only create tokens for individual service accounts"),
        (on_attachments("list"), "can only get individual resources of this type"),
        (on_certificate_requests("delete", "req-n1"), "nodes may not delete podcertificaterequests"),
        (
            on_certificate_requests("list"),
            "can only list/watch podcertificaterequests with nodeName field selector",
        ),
        (
            on("patch", "podcertificaterequests/status", "req-n1", group="certificates.k8s.io"),
            "nodes may not access the status subresource of PodCertificateRequests",
        ),
        (
            on_slices("list"),
            "can only list/watch/deletecollection resourceslices with nodeName field selector",
        ),
        (
            on("update", "leases", "n2", namespace="kube-node-lease", group="coordination.k8s.io"),
            "can only access node lease with the same name as the requesting node",
        ),
    ],
    ids=lambda value: f"{value.verb} {value.resource}" if isinstance(value, Action) else "",
)
def test_the_reason_is_reported(action: Action, reason: str) -> None:
    assert nodes(WEB).decide(NODE, action).reason == reason


def test_nodes_request_no_certificates_for_pods_while_the_feature_is_off() -> None:
    authorizer = following(Kept(WEB), has_certificates=False)
    assert not authorizer.decide(NODE, on_certificate_requests("create")).is_allowed


@pytest.mark.parametrize(
    "user",
    [User("system:node:n1"), User("n1", ("system:nodes",)), User("system:node:", ("system:nodes",)), User("bob")],
)
def test_others_are_no_nodes(user: User) -> None:
    assert not nodes(WEB).decide(user, on("get", "secrets", "mounted")).is_allowed


def test_pods_are_followed_as_they_come_and_go() -> None:
    pods = Kept()
    authorizer = following(pods)
    ask = on("get", "secrets", "mounted")
    seen = [authorizer.decide(NODE, ask).is_allowed]
    pods.put(WEB)
    seen.append(authorizer.decide(NODE, ask).is_allowed)
    pods.put({**WEB, "spec": {**WEB["spec"], "nodeName": "n2"}})
    seen.append(authorizer.decide(NODE, ask).is_allowed)
    pods.put(WEB)
    pods.remove("shop/web")
    seen.append(authorizer.decide(NODE, ask).is_allowed)
    assert seen == [False, True, False, False]


def test_a_pod_that_a_node_makes_up_opens_nothing() -> None:
    mirror = pod(
        "fake",
        "n1",
        annotations={"kubernetes.io/config.mirror": "x"},
        volumes=[{"name": "a", "secret": {"secretName": "crown-jewels"}}],
    )
    assert not nodes(mirror).decide(NODE, on("get", "secrets", "crown-jewels")).is_allowed


POLICY = {"metadata": {"name": "closed", "namespace": "shop"}, "spec": {"podSelector": {}}}


@pytest.mark.parametrize(
    ("verb", "resource", "name", "is_part_of_enforcing"),
    [
        ("list", "pods", "", True),
        ("watch", "pods", "", True),
        ("list", "namespaces", "", True),
        ("get", "pods", "db", False),
        ("watch", "pods", "db", False),
        ("list", "nodes", "", False),
        ("get", "namespaces", "shop", False),
        ("deletecollection", "pods", "", False),
        ("list", "secrets", "", False),
    ],
)
def test_a_node_sees_the_pods_of_others_only_while_it_enforces_a_policy(
    verb: str, resource: str, name: str, is_part_of_enforcing: bool
) -> None:
    action = on(verb, resource, name, namespace="")
    policies = Kept(POLICY)
    enforcing = following(Kept(WEB, NEIGHBOUR), policies=policies)
    assert enforcing.decide(NODE, action).is_allowed is is_part_of_enforcing
    assert not following(Kept(WEB, NEIGHBOUR), policies=policies, may_enforce=False).decide(NODE, action).is_allowed
    policies.remove("shop/closed")
    assert not enforcing.decide(NODE, action).is_allowed


@pytest.mark.parametrize(
    ("action", "allowed"),
    [
        (on("list", "nodes", namespace=""), True),
        (on("get", "nodes", "n2", namespace=""), True),
        (on("list", "pods", namespace=""), True),
        (on_slices("list"), True),
        (on_slices("delete", "slice-n2"), False),
        (on("get", "secrets", "neighbour"), False),
    ],
    ids=lambda value: f"{value.verb} {value.resource} {value.name}" if isinstance(value, Action) else "",
)
def test_before_selectors_a_node_reads_all_nodes_and_pods(action: Action, allowed: bool) -> None:
    assert following(Kept(WEB, NEIGHBOUR), has_selectors=False).decide(NODE, action).is_allowed is allowed
