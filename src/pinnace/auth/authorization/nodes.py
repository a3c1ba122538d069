"""The permissions of nodes: to manage themselves and their pods, and to read what those pods need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pinnace.auth.authorization.rules import Rule
from pinnace.model.authorization import ALLOWED, NO_OPINION, Action, Authorizer, Decision
from pinnace.model.objects import AnyObject
from pinnace.model.typed_objects import PodSpec, Volume
from pinnace.model.users import User
from pinnace.model.watched_objects import WatchedObjects

GROUP = "system:nodes"
_NAME = "system:node:"
_READ = frozenset(("get", "list", "watch"))
_OWN = frozenset(("get", "create", "update", "patch", "delete"))
ENFORCING = Action("enforce", group="networking.k8s.io", resource="networkpolicies", version="v1")
"""The permission of nodes that enforce network policies; no API serves the verb."""
_MIRROR = "kubernetes.io/config.mirror"
_CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")
_NEEDED = frozenset(
    ("secrets", "configmaps", "persistentvolumeclaims", "persistentvolumes", "serviceaccounts", "resourceclaims")
)


def node_name(user: User) -> str | None:
    """Return the node name of a user; None if the user is no node."""
    if not user.name.startswith(_NAME) or GROUP not in user.groups:
        return None
    return user.name[len(_NAME) :] or None


@dataclass(frozen=True, slots=True)
class Enforcement:
    """The network policies, and the authorizer that says which nodes enforce them."""

    policies: WatchedObjects
    enforcers: Authorizer


@dataclass(frozen=True, slots=True)
class BoundObjects:
    """The objects whose spec names a node."""

    slices: WatchedObjects
    attachments: WatchedObjects
    certificate_requests: WatchedObjects | None
    """None while PodCertificateRequest is off: nodes request no certificates for pods."""


class NodeAuthorizer:
    """`rules` hold for every node; what they say of shared objects is narrowed to those that the node's pods need.

    Beside Kubernetes' rules there is one: a node that may `enforce` networkpolicies may list and watch all pods and
    namespaces while there is a network policy, as the network plug-in of each node of other clusters may.
    """

    def __init__(
        self,
        *,
        rules: Sequence[Rule],
        pods: WatchedObjects,
        claims: WatchedObjects,
        bound: BoundObjects,
        enforcement: Enforcement,
        has_selectors: bool = True,
    ) -> None:
        """`has_selectors` is AuthorizeNodeWithSelectors, on since 1.32."""
        self._rules = tuple(rules)
        self._needs = _Needs(pods, claims)
        self._bound = bound
        self._enforcement = enforcement
        self._has_selectors = has_selectors

    def decide(self, user: User, action: Action) -> Decision:
        node = node_name(user)
        if node is None:
            return NO_OPINION
        if action.group in ("", "resource.k8s.io") and action.resource in _NEEDED:
            return self._decide_needed(node, action)
        match action.group, action.resource:
            case "", "nodes" if self._has_selectors:
                return _on_nodes(node, action)
            case "", "pods" if self._has_selectors:
                return self._on_pods(node, user, action)
            case "", "namespaces" if self._enforces(user, action):
                return ALLOWED
            case ("coordination.k8s.io", "leases") | ("storage.k8s.io", "csinodes"):
                return _on_own(node, action)
            case "storage.k8s.io", "volumeattachments":
                return self._on_attachments(node, action)
            case "resource.k8s.io", "resourceslices":
                return self._on_slices(node, action)
            case "certificates.k8s.io", "podcertificaterequests":
                return self._on_certificate_requests(node, action)
        return ALLOWED if any(rule.allows(action) for rule in self._rules) else NO_OPINION

    def _decide_needed(self, node: str, action: Action) -> Decision:
        if reason := _refuse_verb(action):
            return _no(reason)
        if not action.name:
            return _no("No Object name found")
        if not self._needs.has(node, action.resource, action.namespace, action.name):
            return _no(f"no relationship found between node '{node}' and this object")
        return ALLOWED

    def _on_attachments(self, node: str, action: Action) -> Decision:
        if action.verb != "get":
            return _no("can only get individual resources of this type")
        if action.subresource:
            return _no("cannot get subresource")
        return _on_bound(node, self._bound.attachments, action)

    def _on_slices(self, node: str, action: Action) -> Decision:
        if action.subresource:
            return _no("cannot authorize ResourceSlice subresources")
        if action.verb == "create":
            return ALLOWED  # Admission holds a node to slices of its own.
        if action.verb in ("get", "update", "patch", "delete"):
            return _on_bound(node, self._bound.slices, action)
        if action.verb not in ("list", "watch", "deletecollection"):
            verbs = "get, watch, list, create, update, patch, delete, deletecollection"
            return _no(f"only the following verbs are allowed for a ResourceSlice: {verbs}")
        if _selects_own(node, action) or not self._has_selectors:  # Then admission holds a node to its own.
            return ALLOWED
        return _no("can only list/watch/deletecollection resourceslices with nodeName field selector")

    def _on_certificate_requests(self, node: str, action: Action) -> Decision:
        if self._bound.certificate_requests is None:
            return NO_OPINION
        if action.subresource:
            return _no("nodes may not access the status subresource of PodCertificateRequests")
        if action.verb == "create":
            return ALLOWED  # Admission holds a node to requests for its own pods.
        if action.verb == "get":
            return _on_bound(node, self._bound.certificate_requests, action)
        if action.verb not in ("list", "watch"):
            return _no(f"nodes may not {action.verb} podcertificaterequests")
        if _selects_own(node, action):
            return ALLOWED
        return _no("can only list/watch podcertificaterequests with nodeName field selector")

    def _enforces(self, user: User, action: Action) -> bool:
        """Whether this is a list or watch of all that a network policy may select, and there is one to enforce."""
        if action.verb not in ("list", "watch") or action.name or action.subresource:
            return False
        if next(iter(self._enforcement.policies.items()), None) is None:
            return False
        decision = self._enforcement.enforcers.decide(user, ENFORCING)
        return isinstance(decision, Decision) and decision.is_allowed

    def _on_pods(self, node: str, user: User, action: Action) -> Decision:
        if not action.subresource and action.verb in _READ:
            if action.verb != "get" and _selects_own(node, action):
                return ALLOWED
            if action.name and self._needs.runs(node, f"{action.namespace}/{action.name}"):
                return ALLOWED
            if self._enforces(user, action):
                return ALLOWED
            if action.name:
                return _no(f"no relationship found between node '{node}' and this object")
            return _no("can only list/watch pods with spec.nodeName field selector")
        return ALLOWED if any(rule.allows(action) for rule in self._rules) else NO_OPINION


def _on_nodes(node: str, action: Action) -> Decision:
    if action.subresource not in ("", "status"):
        return NO_OPINION
    if action.verb in ("update", "patch") or (action.verb == "create" and not action.subresource):
        return ALLOWED  # Admission holds a node to its own object.
    if action.subresource or action.verb not in _READ:
        return NO_OPINION
    if action.name == node:
        return ALLOWED
    what = f"'{action.name}'" if action.name else "all nodes"
    return _no(f"node '{node}' cannot read {what}, only its own Node object")


def _refuse_verb(action: Action) -> str:
    """Return why no node may do this with an object that its pods need; empty if a node may."""
    verb, below = action.verb, action.subresource
    if action.resource in ("secrets", "configmaps"):
        if verb not in _READ:
            return "can only read resources of this type"
        return "cannot read subresource" if below else ""
    if action.resource == "serviceaccounts" and (verb, below) != ("get", ""):
        if verb != "create" or not action.name:
            return "can only create tokens for individual service accounts"
        return "" if below == "token" else "can only create token subresource of serviceaccount"
    if action.resource == "persistentvolumeclaims" and below == "status":
        return "" if verb in ("update", "patch") else "can only get/update/patch this type"
    if verb != "get":
        return "can only get individual resources of this type"
    return "cannot get subresource" if below else ""


def _on_own(node: str, action: Action) -> Decision:
    what = "node lease" if action.resource == "leases" else "CSINode"
    if action.verb not in _OWN:
        return _no(f"can only get, create, update, patch, or delete a {what}")
    if what == "CSINode" and action.subresource:
        return _no("cannot authorize CSINode subresources")
    if what == "node lease" and action.namespace != "kube-node-lease":
        return _no('can only access leases in the "kube-node-lease" system namespace')
    if action.verb != "create" and action.name != node:
        return _no(f"can only access {what} with the same name as the requesting node")
    return ALLOWED


def _on_bound(node: str, objects: WatchedObjects, action: Action) -> Decision:
    """Allow what is done with an object whose spec names the node."""
    if not action.name:
        return _no("No Object name found")
    obj = objects.get(f"{action.namespace}/{action.name}" if action.namespace else action.name) or {}
    if (obj.get("spec") or {}).get("nodeName") != node:
        return _no(f"no relationship found between node '{node}' and this object")
    return ALLOWED


def _selects_own(node: str, action: Action) -> bool:
    """Return whether a list or watch selects only objects of the node."""
    return f"spec.nodeName={node}" in action.fields.replace("==", "=").split(",")


def _no(reason: str) -> Decision:
    return Decision("no opinion", reason)


@dataclass(frozen=True, slots=True)
class _Pod:
    node: str
    needs: frozenset[tuple[str, str]]


class _Needs:
    """The pods of each node and the objects that they need, read at the first request of a node, then followed."""

    def __init__(self, pods: WatchedObjects, claims: WatchedObjects) -> None:
        self._pods = pods
        self._claims = claims
        self._known: dict[str, _Pod] = {}
        self._by_node: dict[str, set[str]] = {}
        self._stale: set[str] = set()
        self._is_loaded = False
        pods.on_change(self._stale.add)

    def runs(self, node: str, key: str) -> bool:
        self._refresh()
        return key in self._by_node.get(node, ())

    def has(self, node: str, resource: str, namespace: str, name: str) -> bool:
        self._refresh()
        for key in self._by_node.get(node, ()):
            home = key.partition("/")[0]
            needs = self._known[key].needs
            if resource == "persistentvolumes":
                if any(self._volume(home, claim) == name for kind, claim in needs if kind == "persistentvolumeclaims"):
                    return True
            elif home == namespace and (resource, name) in needs:
                return True
        return False

    def _volume(self, namespace: str, claim: str) -> str:
        stored = self._claims.get(f"{namespace}/{claim}") or {}
        return str((stored.get("spec") or {}).get("volumeName") or "")

    def _refresh(self) -> None:
        if not self._is_loaded:
            self._is_loaded = True
            self._stale.clear()
            for key, pod in self._pods.items():
                self._place(key, pod)
        while self._stale:
            key = self._stale.pop()
            self._place(key, self._pods.get(key))

    def _place(self, key: str, pod: AnyObject | None) -> None:
        before = self._known.pop(key, None)
        if before is not None:
            self._by_node[before.node].discard(key)
        node = str(((pod or {}).get("spec") or {}).get("nodeName") or "")
        if pod is None or not node:
            return
        # Nodes make mirror pods themselves: what those refer to must not open anything.
        is_mirror = _MIRROR in (pod["metadata"].get("annotations") or {})
        self._known[key] = _Pod(node, frozenset() if is_mirror else frozenset(_needs_of(pod)))
        self._by_node.setdefault(node, set()).add(key)


def _needs_of(pod: AnyObject) -> Iterator[tuple[str, str]]:
    """Yield the objects that a pod refers to: resource and name."""
    spec: PodSpec = pod["spec"]
    if spec.get("serviceAccountName"):
        yield "serviceaccounts", spec["serviceAccountName"]
    for secret in spec.get("imagePullSecrets") or ():
        yield "secrets", secret.get("name", "")
    for volume in spec.get("volumes") or ():
        yield from _needs_of_volume(volume, pod["metadata"]["name"])
    for container in (container for field in _CONTAINERS for container in spec.get(field) or ()):
        for source in container.get("envFrom") or ():
            yield from _names_in(source, "secretRef", "configMapRef")
        for variable in container.get("env") or ():
            yield from _names_in(variable.get("valueFrom") or {}, "secretKeyRef", "configMapKeyRef")
    for claim in (pod.get("status") or {}).get("resourceClaimStatuses") or ():
        yield "resourceclaims", claim.get("resourceClaimName") or ""
    for claim in spec.get("resourceClaims") or ():
        yield "resourceclaims", claim.get("resourceClaimName") or ""


def _needs_of_volume(volume: Volume, pod: str) -> Iterator[tuple[str, str]]:
    for kind, source in volume.items():
        if not isinstance(source, dict):
            continue
        match kind:
            case "secret":
                yield "secrets", source.get("secretName", "")
            case "configMap":
                yield "configmaps", source.get("name", "")
            case "persistentVolumeClaim":
                yield "persistentvolumeclaims", source.get("claimName", "")
            case "ephemeral":
                yield "persistentvolumeclaims", f"{pod}-{volume['name']}"
            case "projected":
                for part in source.get("sources") or ():
                    yield from _names_in(part, "secret", "configMap")
            case _:
                yield from _names_in(source, "secretRef", "")
                yield from _names_in(source, "nodePublishSecretRef", "")
                if kind == "azureFile" and source.get("secretName"):
                    yield "secrets", source["secretName"]


def _names_in(source: AnyObject, secret: str, config_map: str) -> Iterator[tuple[str, str]]:
    for resource, field in (("secrets", secret), ("configmaps", config_map)):
        name = (source.get(field) or {}).get("name") if field else None
        if name:
            yield resource, name
