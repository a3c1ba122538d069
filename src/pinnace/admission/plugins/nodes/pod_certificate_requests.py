"""The requests for pod certificates that a node may make: for its own pods, and what those pods mount."""

from __future__ import annotations

from typing import cast

from pinnace.admission.permissions import Permissions
from pinnace.admission.plugins.pod_references import is_mirror, projections_of
from pinnace.model import errors
from pinnace.model.objects import AnyObject
from pinnace.model.typed_objects import Pod, PodCertificateRequest, PodCertificateRequestSpec
from pinnace.model.watched_objects import WatchedObjects
from pinnace.model.write_review import Review

VERB = "request-serviceaccounts-podcertificate-signer"


class PodCertificateRequests:
    def __init__(
        self, *, nodes: WatchedObjects, pods: WatchedObjects, accounts: WatchedObjects, permissions: Permissions
    ) -> None:
        self._nodes = nodes
        self._pods = pods
        self._accounts = accounts
        self._permissions = permissions

    async def check(self, node: str, review: Review) -> None:
        """Refuse what a node writes to these requests, unless it asks for a certificate that its own pod mounts.

        An object that is missing or new may only be unknown yet: that is an error after which the node tries again, and
        not Forbidden.
        """
        if review.operation != "CREATE":
            raise review.forbidden(f"unexpected operation {review.operation}")
        if review.subresource:
            raise review.forbidden(f"unexpected subresource {review.subresource}")
        request: PodCertificateRequest = review.changed
        spec = request["spec"]
        self._check_node(node, review, spec)
        pod = self._check_pod(review, spec)
        self._check_account(review, spec, pod)
        await self._check_signer(review, spec, pod)

    def _check_node(self, node: str, review: Review, spec: PodCertificateRequestSpec) -> None:
        name, uid = spec.get("nodeName", ""), spec.get("nodeUID", "")
        if name != node:
            why = f'PodCertificateRequest.Spec.NodeName="{name}", which is not the requesting node "{node}"'
            raise review.forbidden(why)
        known = self._nodes.get(name)
        if known is None:
            raise _missing("node", name, f'node "{name}"')
        if uid != _uid_of(known):
            named = f'PodCertificateRequest for pod "{_pod_key(review, spec)}" names node UID "{uid}"'
            raise errors.UnknownError(f'{named}, inconsistent with the running node ("{_uid_of(known)}")')

    def _check_pod(self, review: Review, spec: PodCertificateRequestSpec) -> Pod:
        key, uid = _pod_key(review, spec), spec.get("podUID", "")
        pod = self._pods.get(key)
        if pod is None:
            raise _missing("pod", spec.get("podName", ""), f'pod "{key}"')
        if uid != _uid_of(pod):
            named = f'PodCertificateRequest for pod "{key}" contains pod UID ("{uid}")'
            raise errors.UnknownError(f'{named} which differs from running pod "{_uid_of(pod)}"')
        running = cast("Pod", pod)
        node = spec.get("nodeName", "")
        if running["spec"].get("nodeName") != node:
            raise review.forbidden(f'pod "{key}" is not running on node "{node}" named in the PodCertificateRequest')
        if is_mirror(running):
            raise review.forbidden(f'pod "{key}" is a mirror pod')
        return running

    def _check_account(self, review: Review, spec: PodCertificateRequestSpec, pod: Pod) -> None:
        name, uid = spec.get("serviceAccountName", ""), spec.get("serviceAccountUID", "")
        request = f'PodCertificateRequest for pod "{_pod_key(review, spec)}"'
        of_pod = pod["spec"].get("serviceAccountName", "")
        if name != of_pod:
            why = f'{request} contains serviceAccountName ("{name}") that differs from running pod ("{of_pod}")'
            raise review.forbidden(why)
        key = f"{review.namespace}/{name}"
        account = self._accounts.get(key)
        if account is None:
            raise _missing("serviceaccount", name, f'service account "{key}"')
        if uid != _uid_of(account):
            named = f'{request} names service account UID "{uid}"'
            raise errors.UnknownError(f'{named}, which differs from the running service account ("{_uid_of(account)}")')

    async def _check_signer(self, review: Review, spec: PodCertificateRequestSpec, pod: Pod) -> None:
        signer = spec.get("signerName", "")
        mounted = (projection.get("podCertificate") for projection in projections_of(pod["spec"]))
        if any(certificate is not None and certificate.get("signerName") == signer for certificate in mounted):
            return
        denied = await self._permissions.forbidden_error(
            review.user,
            VERB,
            group=review.resource.group,
            resource=signer.replace("/", ":") or "-",  # A question about no resource is not one about a path.
            namespace=review.namespace,
            name=spec.get("serviceAccountName", ""),
        )
        if denied:
            why = f'does not mount a podCertificate projected volume for signer "{signer}"'
            raise review.forbidden(f'pod "{_pod_key(review, spec)}" {why}')


def _pod_key(review: Review, spec: PodCertificateRequestSpec) -> str:
    return f"{review.namespace}/{spec.get('podName', '')}"


def _uid_of(obj: AnyObject) -> str:
    return str(obj["metadata"].get("uid", ""))


def _missing(kind: str, name: str, place: str) -> errors.UnknownError:
    error = f'{kind} "{name}" not found'
    return errors.UnknownError(f"while retrieving {place} named in the PodCertificateRequest: {error}")
