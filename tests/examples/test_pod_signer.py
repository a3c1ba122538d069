"""The signer of the example, and a pod of a node that mounts its certificate."""

from __future__ import annotations

from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from tests.node.agent.conftest import NodeInMemory, memory_node

from pinnace.sdk.command.operator_files import operator_in

__all__ = ["memory_node"]
EXAMPLE = Path(__file__).parents[2] / "examples" / "15-pod-signer"


async def test_a_pod_gets_a_certificate_in_the_name_of_its_service_account(memory_node: NodeInMemory) -> None:
    pod = yaml.safe_load((EXAMPLE / "client.yaml").read_text())
    async with operator_in(str(EXAMPLE / "signer.py")).running(memory_node.client):
        await memory_node.create(
            "client", volumes=pod["spec"]["volumes"], container=pod["spec"]["containers"][0] | {"image": "web"}
        )
        running = await memory_node.until_ready("client")
    volumes = memory_node.directory / "memory" / running["metadata"]["uid"]
    _, _, chain = (volumes / "identity" / "bundle.pem").read_text().partition("-----END PRIVATE KEY-----\n")
    certificate = x509.load_pem_x509_certificate(chain.encode())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == ["spiffe://cluster.local/ns/default/sa/default"]
    ca = x509.load_pem_x509_certificate(await _trusted(memory_node, volumes / "trust" / "ca.pem"))
    key = ca.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    certificate.verify_directly_issued_by(ca)


async def _trusted(node: NodeInMemory, file: Path) -> bytes:
    """Return the trust bundle in the volume: it may have been made before the signer had published it."""

    async def is_there() -> bool:
        await node.advance(61)
        return bool(file.read_bytes())

    await node.until(is_there)
    return file.read_bytes()
