"""A node may write its own Node, its own pods and what belongs to them, and nothing that would widen its power."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from pinnace.admission.chain import ALL
from pinnace.admission.plugins.certificates import COMMON_NAME, subject_of
from pinnace.admission.plugins.nodes.pod_certificate_requests import PodCertificateRequests
from pinnace.admission.plugins.nodes.token_audiences import TokenAudiences
from pinnace.admission.plugins.pod_references import MIRROR, is_mirror, reference_of
from pinnace.kinds.core.node_labels import is_kubelet_label
from pinnace.model import errors
from pinnace.model.objects import NOTHING, AnyObject
from pinnace.model.typed_objects import BoundObjectReference, CertificateSigningRequest, Node, Pod
from pinnace.model.watched_objects import WatchedObjects
from pinnace.model.write_review import Review
from pinnace.process.eager_coroutines import NowOrLater

NODES = "system:nodes"
_USER = "system:node:"
_LEASES = "kube-node-lease"
_NODE_SIGNERS = frozenset(("kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"))
_CLAIM_STATUS = ("capacity", "conditions", "allocatedResources", "allocatedResourceStatuses")


class NodeRestriction:
    interests = (
        ("", "pods", ALL),
        ("", "nodes", ALL),
        ("", "persistentvolumeclaims", ALL),
        ("", "serviceaccounts", ALL),
        ("coordination.k8s.io", "leases", ALL),
        ("storage.k8s.io", "csinodes", ALL),
        ("resource.k8s.io", "resourceslices", ALL),
        ("certificates.k8s.io", "certificatesigningrequests", ALL),
        ("certificates.k8s.io", "podcertificaterequests", ALL),
    )

    def __init__(
        self,
        nodes: WatchedObjects,
        pods: WatchedObjects,
        audiences: TokenAudiences | None,
        pod_certificates: PodCertificateRequests | None,
    ) -> None:
        """Without `audiences`, as before 1.33, a node may request tokens for any audience; without `pod_certificates`,
        as while PodCertificateRequest is off, it may request no certificates for pods.
        """
        self._nodes = nodes
        self._pods = pods
        self._audiences = audiences
        self._pod_certificates = pod_certificates
        self._rules: dict[str, Callable[[str, Review], NowOrLater[None]]] = {
            "pods": self._pod,
            "nodes": _node,
            "persistentvolumeclaims": _claim,
            "serviceaccounts": self._token,
            "leases": _lease,
            "csinodes": _csi_node,
            "resourceslices": _slice,
            "certificatesigningrequests": _certificate,
            "podcertificaterequests": self._pod_certificate,
        }

    def mutate(self, review: Review) -> NowOrLater[None]:
        if NODES not in review.user.groups or not review.user.name.startswith(_USER):
            return None
        node = review.user.name[len(_USER) :]
        if not node:
            raise review.forbidden(f'could not determine node from user "{review.user.name}"')
        return self._rules[review.resource.plural](node, review)

    def _pod(self, node: str, review: Review) -> None:
        match review.subresource, review.operation:
            case "", "CREATE":
                self._mirror_pod(node, review)
            case "", "DELETE":
                if _node_of(review.old) != node:
                    raise review.forbidden(f'node "{node}" can only delete pods with spec.nodeName set to itself')
            case "", operation:
                why = f'unexpected operation "{operation}", node "{node}" can only create and delete mirror pods'
                raise review.forbidden(why)
            case "status", "UPDATE":
                _pod_status(node, review)
            case "status", operation:
                raise review.forbidden(f'unexpected operation "{operation}"')
            case "eviction", "CREATE":
                pod = self._pods.get(f"{review.namespace}/{review.name}")
                if pod is None:
                    raise errors.NotFound(group="", plural="pod", name=review.name)
                if _node_of(pod) != node:
                    raise review.forbidden(f"node {node} can only evict pods with spec.nodeName set to itself")
            case _, "CONNECT":
                pass  # Whether it may is for its roles alone to say.
            case subresource, _:
                why = f"unexpected pod subresource \"{subresource}\", only 'status' and 'eviction' are allowed"
                raise review.forbidden(why)

    def _token(self, node: str, review: Review) -> NowOrLater[None]:
        """Admit a token only if it is bound to a pod that runs on the node."""
        if (review.operation, review.subresource) != ("CREATE", "token"):
            return None
        bound: BoundObjectReference = (review.changed.get("spec") or {}).get("boundObjectRef") or NOTHING
        name, uid = bound.get("name", ""), bound.get("uid", "")
        if (bound.get("apiVersion"), bound.get("kind")) != ("v1", "Pod") or not name:
            raise review.forbidden("node requested token not bound to a pod")
        if not uid:
            raise review.forbidden("node requested token with a pod binding without a uid")
        pod = self._pods.get(f"{review.namespace}/{name}")
        if pod is None:
            raise errors.NotFound(group="", plural="pods", name=name)
        if uid != pod["metadata"]["uid"]:
            other = "does not match the UID in record. The object might have been deleted and then recreated"
            raise review.forbidden(f"the UID in the bound object reference ({uid}) {other}")
        if _node_of(pod) != node:
            raise review.forbidden("node requested token bound to a pod scheduled on a different node")
        return self._audiences.check(review, cast("Pod", pod)) if self._audiences is not None else None

    def _pod_certificate(self, node: str, review: Review) -> NowOrLater[None]:
        if self._pod_certificates is None:
            raise review.forbidden("PodCertificateRequest feature gate is disabled")
        return self._pod_certificates.check(node, review)

    def _mirror_pod(self, node: str, review: Review) -> None:
        pod: Pod = review.changed
        if not is_mirror(pod):
            why = f'pod does not have "{MIRROR}" annotation, node "{node}" can only create mirror pods'
            raise review.forbidden(why)
        if _node_of(pod) != node:
            raise review.forbidden(f'node "{node}" can only create pods with spec.nodeName set to itself')
        owners = pod["metadata"].get("ownerReferences") or []
        if len(owners) > 1:
            raise review.forbidden(f'node "{node}" can only create pods with a single owner reference set to itself')
        if not owners or (owners[0].get("apiVersion"), owners[0].get("kind"), owners[0].get("name")) != (
            "v1",
            "Node",
            node,
        ):
            raise review.forbidden(f'node "{node}" can only create pods with an owner reference set to itself')
        owner = owners[0]
        if not owner.get("controller"):
            why = f'node "{node}" can only create pods with a controller owner reference set to itself'
            raise review.forbidden(why)
        if owner.get("blockOwnerDeletion"):
            raise review.forbidden(f'node "{node}" must not set blockOwnerDeletion on an owner reference')
        known = self._nodes.get(node)
        if known is None:
            raise errors.NotFound(group="", plural="nodes", name=node)
        uid = known["metadata"].get("uid", "")
        if owner.get("uid") != uid:
            raise review.forbidden(f"node {node} UID mismatch: expected {owner.get('uid', '')} got {uid}")
        if needed := reference_of(pod.get("spec") or NOTHING):
            raise review.forbidden(f'node "{node}" can not create pods that reference {needed}')


def _pod_status(node: str, review: Review) -> None:
    old, new = cast("Pod", review.old or {"metadata": {}}), cast("Pod", review.changed)
    if _node_of(old) != node:
        why = f'node "{node}" can only update pod status for pods with spec.nodeName set to itself'
        raise review.forbidden(why)
    if (old["metadata"].get("labels") or {}) != (new["metadata"].get("labels") or {}):
        raise review.forbidden(f'node "{node}" cannot update labels through pod status')
    before, after = old.get("status") or {}, new.get("status") or {}
    if (before.get("resourceClaimStatuses") or []) != (after.get("resourceClaimStatuses") or []):
        raise review.forbidden(f'node "{node}" cannot update resource claim statues')
    if before.get("extendedResourceClaimStatus") != after.get("extendedResourceClaimStatus"):
        raise review.forbidden(f'node "{node}" cannot update extended resource claim status')


def _node(node: str, review: Review) -> None:
    if review.name != node:
        raise review.forbidden(f'node "{node}" is not allowed to modify node "{review.name}"')
    if review.operation not in ("CREATE", "UPDATE"):
        return
    new: Node = review.changed
    old = review.old
    spec, before = new.get("spec") or {}, (old or {}).get("spec") or {}
    if old is None:
        if spec.get("configSource") is not None:
            raise review.forbidden(f'node "{node}" is not allowed to create pods with a non-nil configSource')
        if labels := _forbidden_labels(new, {"metadata": {}}):
            raise review.forbidden(f'node "{node}" is not allowed to set the following labels: {", ".join(labels)}')
        return
    if spec.get("configSource") is not None and spec["configSource"] != before.get("configSource"):
        raise review.forbidden(f'node "{node}" is not allowed to update configSource to a new non-nil configSource')
    if (spec.get("taints") or []) != (before.get("taints") or []):
        raise review.forbidden(f'node "{node}" is not allowed to modify taints')
    if (new["metadata"].get("ownerReferences") or []) != (old["metadata"].get("ownerReferences") or []):
        raise review.forbidden(f'node "{node}" is not allowed to modify ownerReferences')
    if labels := _forbidden_labels(new, old):
        raise review.forbidden(f"is not allowed to modify labels: {', '.join(labels)}")


def _claim(node: str, review: Review) -> None:
    if review.subresource != "status":
        raise review.forbidden("may only update PVC status")
    if review.operation != "UPDATE":
        raise review.forbidden(f'unexpected operation "{review.operation}"')
    if _beside_capacity(review.changed) != _beside_capacity(review.old or {"metadata": {}}):
        why = f'node "{node}" is not allowed to update fields other than status.quantity and status.conditions'
        raise review.forbidden(why)


def _lease(node: str, review: Review) -> None:
    if review.namespace != _LEASES:
        raise review.forbidden(f'can only access leases in the "{_LEASES}" system namespace')
    if review.name != node:
        raise review.forbidden("can only access node lease with the same name as the requesting node")


def _csi_node(node: str, review: Review) -> None:
    if review.name != node:
        raise review.forbidden("can only access CSINode with the same name as the requesting node")


def _slice(node: str, review: Review) -> None:
    if review.operation == "CREATE" and _node_of(review.new) != node:
        raise review.forbidden("can only create ResourceSlice with the same NodeName as the requesting node")
    if review.operation == "DELETE" and _node_of(review.old) != node:
        raise review.forbidden("can only delete ResourceSlice with the same NodeName as the requesting node")


def _certificate(node: str, review: Review) -> None:
    if review.operation != "CREATE" or review.subresource:
        return
    request: CertificateSigningRequest = review.changed
    if (request.get("spec") or {}).get("signerName") not in _NODE_SIGNERS:
        return
    if subject_of(request, COMMON_NAME) != [f"{_USER}{node}"]:
        raise review.forbidden(f"can only create a node CSR with CN={_USER}{node}")


def _node_of(obj: AnyObject | None) -> str:
    return str(((obj or {}).get("spec") or {}).get("nodeName") or "")


def _beside_capacity(claim: AnyObject) -> tuple[Any, ...]:
    metadata = {k: v for k, v in claim["metadata"].items() if k not in ("resourceVersion", "managedFields")}
    status = {k: v for k, v in (claim.get("status") or {}).items() if k not in _CLAIM_STATUS}
    return metadata, claim.get("spec"), status


def _forbidden_labels(new: AnyObject, old: AnyObject) -> list[str]:
    """Return the labels that the write changes and that a node may not."""
    after, before = new["metadata"].get("labels") or {}, old["metadata"].get("labels") or {}
    changed = {name for name in after.keys() | before.keys() if after.get(name) != before.get(name)}
    return sorted(name for name in changed if not is_kubelet_label(name))
