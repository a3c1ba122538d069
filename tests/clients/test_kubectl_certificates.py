"""kubectl asks for a certificate, has it approved, and is known by it; and reads a token that a secret holds."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.clients.kubectl_command import Kubectl

from pinnace.auth.certificates.authority import private_pem


def known_as(kubectl: Kubectl, directory: Path, **user: Any) -> Kubectl:
    """kubectl with these credentials and none of the administrator's."""
    config = yaml.safe_load(kubectl.kubeconfig.read_text())
    for entry in config["users"]:
        entry["user"] = {name.replace("_", "-"): value for name, value in user.items()}
    path = directory / "kubeconfig-of-another"
    path.write_text(yaml.safe_dump(config))
    return Kubectl(kubectl.binary, path, kubectl.cache, kubectl.namespace)


def request_of(name: str, key: ec.EllipticCurvePrivateKey) -> str:
    subject = x509.Name(
        [x509.NameAttribute(NameOID.COMMON_NAME, "jane"), x509.NameAttribute(NameOID.ORGANIZATION_NAME, "devs")]
    )
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    pem = request.public_bytes(serialization.Encoding.PEM)
    return yaml.safe_dump(
        {
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"name": name},
            "spec": {
                "request": base64.b64encode(pem).decode(),
                "signerName": "kubernetes.io/kube-apiserver-client",
                "expirationSeconds": 86400,
                "usages": ["client auth"],
            },
        }
    )


def test_an_approved_certificate_lets_its_owner_in(kubectl: Kubectl, tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = f"jane-{kubectl.namespace}"
    kubectl("create -f -", stdin=request_of(name, key))
    assert "Pending" in kubectl(f"get csr {name}")
    assert f"{name} approved" in kubectl(f"certificate approve {name}")
    kubectl(f"wait --for=jsonpath={{.status.certificate}} csr/{name} --timeout=120s")
    assert "Approved,Issued" in kubectl(f"get csr {name}")
    issued = kubectl(f"get csr {name} -o jsonpath={{.status.certificate}}")
    key_data = base64.b64encode(private_pem(key)).decode()
    jane = known_as(kubectl, tmp_path, client_certificate_data=issued, client_key_data=key_data)
    user = jane.json("auth whoami")["status"]["userInfo"]
    assert (user["username"], user["groups"]) == ("jane", ["devs", "system:authenticated"])
    assert 'User "jane" cannot list resource "pods"' in jane.failure("get pods")
    kubectl("create rolebinding devs --clusterrole=view --group=devs")
    assert "No resources found" in jane.outcome("get pods").stderr
    kubectl(f"delete csr {name}")


def test_a_denied_certificate_is_not_issued(kubectl: Kubectl) -> None:
    name = f"denied-{kubectl.namespace}"
    kubectl("create -f -", stdin=request_of(name, ec.generate_private_key(ec.SECP256R1())))
    kubectl(f"certificate deny {name}")
    assert "Denied" in kubectl(f"get csr {name}")
    assert kubectl(f"get csr {name} -o jsonpath={{.status.certificate}}") == ""
    assert "is already Denied" in kubectl.failure(f"certificate approve {name}")


def test_a_secret_holds_a_token_that_works(kubectl: Kubectl, tmp_path: Path) -> None:
    kubectl("create serviceaccount robot")
    manifest = (
        "apiVersion: v1\nkind: Secret\ntype: kubernetes.io/service-account-token\n"
        "metadata: {name: robot-token, annotations: {kubernetes.io/service-account.name: robot}}\n"
    )
    kubectl("create -f -", stdin=manifest)
    kubectl("wait --for=jsonpath={.data.token} secret/robot-token --timeout=120s")
    assert "kubernetes.io/service-account-token   3" in kubectl("get secret robot-token")
    token = base64.b64decode(kubectl("get secret robot-token -o jsonpath={.data.token}")).decode()
    robot = known_as(kubectl, tmp_path, token=token)
    name = f"system:serviceaccount:{kubectl.namespace}:robot"
    assert robot.json("auth whoami")["status"]["userInfo"]["username"] == name
    kubectl("delete serviceaccount robot")
    kubectl("wait --for=delete secret/robot-token --timeout=120s")
    assert robot.outcome("auth whoami").code != 0
