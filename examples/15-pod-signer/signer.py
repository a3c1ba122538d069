"""A signer for pods: a pod that mounts a certificate of example.com/pods gets one in the name of its service account.

pinnace run examples/15-pod-signer/signer.py
kubectl apply -f examples/15-pod-signer/client.yaml
"""

from __future__ import annotations

import base64
import contextlib
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pinnace.model import errors
from pinnace.sdk import Context, Operator
from pinnace.sdk.kinds import ClusterTrustBundle, Condition, PodCertificateRequest, Secret

SIGNER = "example.com/pods"
NAMESPACE, CA_SECRET = "default", "pod-signer-ca"
TRUST_DOMAIN = "cluster.local"

operator = Operator("pod-signer")
operator.needs(PodCertificateRequest, "patch", subresource="status")
operator.needs("certificates.k8s.io/v1/Signer", "sign", "attest")  # No kind: signers exist in roles alone.
operator.needs(ClusterTrustBundle, "create")
operator.needs(Secret, "get", "create")


class Authority(NamedTuple):
    """The key of the signer, and its own certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()


@operator.reconcile(PodCertificateRequest, fields=f"spec.signerName={SIGNER}")
async def sign(request: PodCertificateRequest, ctx: Context) -> None:
    if request.get("status", {}).get("conditions"):
        return  # It has been decided for good.
    spec = request["spec"]
    # The server has checked the signature.
    signing_request = x509.load_der_x509_csr(base64.b64decode(spec["stubPKCS10Request"]))
    identity = f"spiffe://{TRUST_DOMAIN}/ns/{request['metadata'].get('namespace')}/sa/{spec['serviceAccountName']}"
    begin = datetime.now(UTC).replace(microsecond=0)
    end = begin + timedelta(seconds=spec.get("maxExpirationSeconds", 86400))
    authority = await load_authority(ctx)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(authority.certificate.subject)
        .public_key(signing_request.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
        .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(identity)]), critical=True)
        .sign(authority.key, hashes.SHA256())
    )
    issued: Condition = {
        "type": "Issued",
        "status": "True",
        "reason": "Signed",
        "message": "",
        "lastTransitionTime": stamp(begin),
    }
    request["status"] = {
        "conditions": [issued],
        "certificateChain": certificate.public_bytes(serialization.Encoding.PEM).decode(),
        "notBefore": stamp(begin),
        "beginRefreshAt": stamp(begin + (end - begin) / 2),
        "notAfter": stamp(end),
    }


async def load_authority(ctx: Context) -> Authority:
    """Return the key of the signer; the first call in a cluster makes it, and publishes its certificate."""
    secret = await ctx.client.get_or_none(Secret, CA_SECRET, namespace=NAMESPACE)
    if secret is None:
        made = new_authority()
        key = made.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        metadata = {"name": CA_SECRET, "namespace": NAMESPACE}
        data = {"tls.key": key.decode(), "tls.crt": made.pem}
        await ctx.client.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data})
        secret = await ctx.client.get(Secret, CA_SECRET, namespace=NAMESPACE)
    files = {name: base64.b64decode(text) for name, text in secret.get("data", {}).items()}
    loaded = serialization.load_pem_private_key(files["tls.key"], password=None)
    assert isinstance(loaded, ec.EllipticCurvePrivateKey), "this signer made the key"
    authority = Authority(loaded, x509.load_pem_x509_certificate(files["tls.crt"]))
    bundle = {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "ClusterTrustBundle",
        "metadata": {"name": f"{SIGNER.replace('/', ':')}:ca", "labels": {"signer": "pods"}},
        "spec": {"signerName": SIGNER, "trustBundle": authority.pem},
    }
    with contextlib.suppress(errors.AlreadyExists):
        await ctx.client.create(bundle)
    return authority


def new_authority() -> Authority:
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "pod signer")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=3650))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Authority(key, certificate)


def stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


if __name__ == "__main__":
    operator.serve()
