"""The certificates of ClusterTrustBundles, as pods mount them: without headers and repetitions, in an order of chance.

The order differs from agent to agent, so that no program comes to depend on it, and stays the same while one runs.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
from collections.abc import Iterable, Sequence

from pinnace.kinds.certificates.parsing import pem_blocks
from pinnace.model import selectors
from pinnace.model.objects import Key
from pinnace.model.typed_objects import ClusterTrustBundle, ClusterTrustBundleProjection, LabelSelector
from pinnace.node.agent.volumes.certificate_kinds import CertificateKind, SourceMissing
from pinnace.reconcile.manager import Manager

_MOST_CACHED = 256
_LINE = 64


class TrustBundles:
    def __init__(self, manager: Manager) -> None:
        self._bundles = CertificateKind[ClusterTrustBundle](manager, "ClusterTrustBundle")
        self._salt = secrets.token_bytes(16)
        self._normalized: dict[str, bytes] = {}
        self._version = ""
        """The version of the informer at which `_normalized` was empty."""

    async def anchors(self, projection: ClusterTrustBundleProjection) -> bytes:
        """Return the certificates (PEM) that a projection selects. Raise SourceMissing if no bundle fits."""
        informer = await self._bundles.informer()
        if informer.version != self._version or len(self._normalized) >= _MOST_CACHED:
            self._version = informer.version
            self._normalized.clear()
        choice = repr([projection.get(field) for field in ("name", "signerName", "labelSelector")])
        known = self._normalized.get(choice)
        if known is not None:
            return known
        if "name" in projection:
            stored = informer.cache.get(Key("", projection["name"]))
            bundles = [] if stored is None else [stored]
            missing = (
                "while getting ClusterTrustBundle: "
                f'clustertrustbundle.certificates.k8s.io "{projection["name"]}" not found'
            )
        else:
            chosen = _selected(informer.cache.list(), projection.get("signerName", ""), projection.get("labelSelector"))
            bundles = list(chosen)
            missing = "combination of signerName and labelSelector matched zero ClusterTrustBundles"
        if not bundles:
            if projection.get("optional"):
                return b""
            raise SourceMissing(missing)
        version = self._version
        anchors = await asyncio.to_thread(_normalize, [bundle["spec"]["trustBundle"] for bundle in bundles], self._salt)
        if version == self._version:
            self._normalized[choice] = anchors
        return anchors


def _selected(
    bundles: Iterable[ClusterTrustBundle], signer: str, selector: LabelSelector | None
) -> Iterable[ClusterTrustBundle]:
    """Yield the bundles of a signer with these labels. No selector selects nothing, an empty one everything."""
    labels = selectors.from_object(selector)
    return (
        bundle
        for bundle in bundles
        if bundle["spec"].get("signerName", "") == signer and labels.matches(bundle["metadata"].get("labels") or {})
    )


def _normalize(bundles: Sequence[str], salt: bytes) -> bytes:
    certificates = {block.der for bundle in bundles for block in pem_blocks(bundle.encode())}
    ordered = sorted(certificates, key=lambda der: hashlib.sha256(salt + der).digest())
    return b"".join(map(certificate_pem, ordered))


def certificate_pem(der: bytes) -> bytes:
    """Return a PEM block without headers."""
    text = base64.b64encode(der)
    lines = b"\n".join(text[start : start + _LINE] for start in range(0, len(text), _LINE))
    return b"-----BEGIN CERTIFICATE-----\n" + lines + b"\n-----END CERTIFICATE-----\n"
