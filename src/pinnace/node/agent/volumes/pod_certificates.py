"""The keys of pods and the certificates for them: requested, waited for, and replaced before they expire.

A key exists in the memory of the agent and of the pod's volume alone. An agent that starts again requests new ones.
Each call of `credentials` takes the step that is due for one source of a volume:

    nothing ──► requested ──► issued ◄──► requested again
                    └──► denied or failed ◄──┘
"""

from __future__ import annotations

import asyncio
import base64
import logging
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from pinnace.client.snapshots import Snapshot
from pinnace.kinds.certificates.parsing import pem_blocks
from pinnace.model import errors
from pinnace.model.objects import Key, Object, key_of
from pinnace.model.typed_objects import Node, Pod, PodCertificateProjection, PodCertificateRequest, ServiceAccount
from pinnace.node.agent.volumes.certificate_kinds import CertificateKind, SourceMissing
from pinnace.node.agent.volumes.trust_bundles import certificate_pem
from pinnace.process.exposition import Sample
from pinnace.reconcile.manager import Manager

STATES = "kubelet_podcertificate_states"
_ABANDON = timedelta(minutes=10)
"""After this time, a request that the node does not see has been deleted."""
_OVERDUE = timedelta(minutes=10)
_MOST_JITTER = timedelta(minutes=5)
_NOT_ISSUED = "credential bundle is not issued yet"
_log = logging.getLogger(__name__)


class SourcePlace(NamedTuple):
    """The place of a source in its pod."""

    volume: str
    source: int


class KeyAndChain(NamedTuple):
    """A private key and the chain of its certificate, both in PEM."""

    private_key: bytes
    chain: bytes


@dataclass(slots=True)
class _Issued:
    files: KeyAndChain
    refresh_at: datetime
    expires_at: datetime
    is_overdue_recorded: bool = False
    is_expiry_recorded: bool = False

    def state(self, now: datetime) -> str:
        if now > self.expires_at:
            return "expired"
        return "overdue_for_refresh" if now > self.refresh_at + _OVERDUE else "fresh"


@dataclass(frozen=True, slots=True)
class _Requested:
    name: str
    private_key: bytes
    abandon_at: datetime


@dataclass(slots=True)
class _Record:
    """The state of one source of a pod's volume."""

    signer: str
    issued: _Issued | None = None
    requested: _Requested | None = None
    refused: str = ""
    """The state denied or failed, from which there is no way back."""
    error: str = ""

    def state(self, now: datetime) -> str:
        if self.refused:
            return self.refused
        return self.issued.state(now) if self.issued is not None else "not_yet_issued"


class PodCertificates:
    def __init__(
        self, manager: Manager, node_name: str, node: Callable[[], Node | None], enqueue: Callable[[Key], None]
    ) -> None:
        """`node` returns the Node object; `enqueue` has a pod looked at whose request has changed."""
        self._client = manager.client
        self._recorder = manager.recorder
        self._node_name = node_name
        self._node = node
        self._enqueue = enqueue
        self._requests = CertificateKind[PodCertificateRequest](
            manager, "PodCertificateRequest", handler=self._note_change, fields=f"spec.nodeName={node_name}"
        )
        self._records: dict[str, dict[SourcePlace, _Record]] = {}
        """By the uid of the pod."""
        self._changed: set[str] = set()
        manager.metrics.gauge(STATES, "The sources of volumes with pod certificates, by signer and state.", self._count)

    async def credentials(self, pod: Pod, place: SourcePlace, source: PodCertificateProjection) -> KeyAndChain:
        """Return the newest credentials for a source, after the step that is due. Raise SourceMissing without any."""
        uid = pod["metadata"]["uid"]
        self._changed.discard(uid)
        record = self._records.setdefault(uid, {}).setdefault(place, _Record(source["signerName"]))
        try:
            await self._advance(pod, source, record)
        except errors.ApiError as error:
            _log.warning("no certificate of %s for pod %s: %s", source["signerName"], "/".join(key_of(pod)), error)
        if record.refused:
            raise SourceMissing(record.error)
        if record.issued is None:
            raise SourceMissing(_NOT_ISSUED)
        self._record_delays(pod, record.issued)
        return record.issued.files

    def has_news(self, uid: str) -> bool:
        """Whether a request of a pod has changed since its volumes were made."""
        return uid in self._changed

    def forget(self, uid: str) -> None:
        self._records.pop(uid, None)
        self._changed.discard(uid)

    async def _advance(self, pod: Pod, source: PodCertificateProjection, record: _Record) -> None:
        if record.refused:
            return
        now = self._client.clock.now()
        if record.requested is not None:
            await self._settle(pod, record, record.requested, now)
        is_due = record.issued is None or now >= record.issued.refresh_at
        if record.requested is None and not record.refused and is_due:
            record.requested = await self._request(pod, source)

    async def _settle(self, pod: Pod, record: _Record, requested: _Requested, now: datetime) -> None:
        """Take the outcome of a request, if there is one."""
        informer = await self._requests.informer()
        request = informer.cache.get(Key(pod["metadata"]["namespace"], requested.name))
        if request is None:
            if now > requested.abandon_at:
                record.requested = None
            return
        status = request.get("status") or {}
        for condition in status.get("conditions") or ():
            if condition["type"] == "Issued":
                chain = b"".join(
                    certificate_pem(block.der) for block in pem_blocks(status.get("certificateChain", "").encode())
                )
                refresh_at = datetime.fromisoformat(status["beginRefreshAt"]) + _jitter()
                expires_at = datetime.fromisoformat(status["notAfter"])
                record.issued = _Issued(KeyAndChain(requested.private_key, chain), refresh_at, expires_at)
                record.requested = None
                return
            if condition["type"] in ("Denied", "Failed"):
                self._refuse(pod, record, requested.name, condition["type"], condition["reason"], condition["message"])
                return

    def _refuse(self, pod: Pod, record: _Record, name: str, outcome: str, reason: str, message: str) -> None:
        record.requested, record.refused = None, outcome.lower()
        quoted = f'reason="{reason}" message="{message}"'
        record.error = f"PodCertificateRequest was permanently {outcome.lower()}: {quoted}"
        verb = "was denied" if outcome == "Denied" else "failed"
        key = f"{pod['metadata']['namespace']}/{name}"
        text = f'PodCertificateRequest {key} {verb}, reason="{reason}", message="{message}"'
        self._recorder.record(pod, "Warning", outcome, text)

    async def _request(self, pod: Pod, source: PodCertificateProjection) -> _Requested | None:
        """Make a key and request a certificate for it. Return None while the node itself is not known."""
        node = self._node()
        if node is None:
            return None
        await self._requests.informer()  # Open before the request is made: its outcome is not missed.
        metadata = pod["metadata"]
        namespace, account_name = metadata["namespace"], pod["spec"].get("serviceAccountName", "")
        account = await self._client.get(ServiceAccount, account_name, namespace=namespace)
        key, proof = await asyncio.to_thread(_generate, source["keyType"])
        kind = await self._requests.kind()
        spec: Object = {
            "signerName": source["signerName"],
            "podName": metadata["name"],
            "podUID": metadata["uid"],
            "serviceAccountName": account_name,
            "serviceAccountUID": account["metadata"]["uid"],
            "nodeName": self._node_name,
            "nodeUID": node["metadata"]["uid"],
            "stubPKCS10Request": base64.b64encode(proof).decode(),
        }
        if "maxExpirationSeconds" in source:
            spec["maxExpirationSeconds"] = source["maxExpirationSeconds"]
        if source.get("userAnnotations"):
            spec["unverifiedUserAnnotations"] = source["userAnnotations"]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
        made = await self._client.create(
            {
                "apiVersion": kind.api_version,
                "kind": kind.name,
                "metadata": {"generateName": "req-", "namespace": namespace, "ownerReferences": [owner]},
                "spec": spec,
            }
        )
        created = datetime.fromisoformat(made["metadata"]["creationTimestamp"])
        return _Requested(made["metadata"]["name"], key, created + _ABANDON + _jitter())

    def _record_delays(self, pod: Pod, issued: _Issued) -> None:
        """Record once that a certificate was not replaced in time."""
        now = self._client.clock.now()
        if now > issued.refresh_at + _OVERDUE and not issued.is_overdue_recorded:
            issued.is_overdue_recorded = True
            self._recorder.record(pod, "Warning", "CertificateOverdueForRefresh", "PodCertificate refresh overdue")
        if now > issued.expires_at and not issued.is_expiry_recorded:
            issued.is_expiry_recorded = True
            self._recorder.record(pod, "Warning", "CertificateExpired", "PodCertificate expired")

    def _note_change(
        self, old: Snapshot[PodCertificateRequest] | None, new: Snapshot[PodCertificateRequest] | None
    ) -> None:
        changed = new or old
        assert changed is not None, "an event has an old object or a new one"
        spec = changed.object["spec"]
        if spec["podUID"] in self._records:
            self._changed.add(spec["podUID"])
            self._enqueue(Key(changed.key.namespace, spec["podName"]))

    def _count(self) -> list[Sample]:
        now = self._client.clock.now()
        counts = Counter(
            (record.signer, record.state(now)) for records in self._records.values() for record in records.values()
        )
        return [
            ((("signer_name", signer), ("state", state)), float(n)) for (signer, state), n in sorted(counts.items())
        ]


def _generate(key_type: str) -> tuple[bytes, bytes]:
    """Return a new key (PEM of PKCS#8), and a request signed with it (DER of PKCS#10) that proves its possession."""
    from cryptography import x509  # noqa: PLC0415 - few pods have certificates.
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa  # noqa: PLC0415

    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
    if key_type in ("RSA3072", "RSA4096"):
        key = rsa.generate_private_key(public_exponent=65537, key_size=int(key_type.removeprefix("RSA")))
        request = builder.sign(key, hashes.SHA256())
    elif key_type == "ED25519":
        key = ed25519.Ed25519PrivateKey.generate()
        request = builder.sign(key, None)
    elif key_type == "ECDSAP256":
        key = ec.generate_private_key(ec.SECP256R1())
        request = builder.sign(key, hashes.SHA256())
    elif key_type == "ECDSAP384":
        key = ec.generate_private_key(ec.SECP384R1())
        request = builder.sign(key, hashes.SHA384())
    elif key_type == "ECDSAP521":
        key = ec.generate_private_key(ec.SECP521R1())
        request = builder.sign(key, hashes.SHA512())
    else:
        raise SourceMissing(f'while generating keypair: unknown key type "{key_type}"')
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return pem, request.public_bytes(serialization.Encoding.DER)


def _jitter() -> timedelta:
    """Return a delay that keeps the sources of a node from requesting at the same time."""
    return _MOST_JITTER * random.random()
