"""Starts the programs of `pinnace envtest` as controller-runtime's envtest does: its flags, its files, its checks."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID
from tests.free_ports import free_port

from pinnace.process.certificates import (
    CertificateIssuer,
    alternative_names,
    ca_builder,
    certificate_builder,
    common_name,
)

PATIENCE = 60.0


def has_flag(program: Path, flag: str) -> bool:
    """Read the flag's name from --help, as envtest does."""
    page = subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout
    return re.search(rf"(?m)^\s*--{flag}\b", page) is not None


class TinyCa:
    """A CA whose key no program sees, and RSA certificates that are valid for a week."""

    def __init__(self) -> None:
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._issuer = CertificateIssuer(common_name("envtest-environment"), self.key.public_key())
        builder = ca_builder(self._issuer.name, self.key.public_key(), valid=_this_week())
        self.certificate = builder.sign(self.key, hashes.SHA256())

    def issue(self, folder: Path, file: str, common_name: str, *groups: str, server: bool = False) -> None:
        """Write FILE.crt and FILE.key."""
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        names = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject = x509.Name([*names, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        builder = certificate_builder(subject, key.public_key(), valid=_this_week(), issuer=self._issuer)
        if server:
            builder = builder.add_extension(alternative_names(["127.0.0.1"]), critical=False)
        (folder / f"{file}.crt").write_bytes(pem(builder.sign(self.key, hashes.SHA256())))
        (folder / f"{file}.key").write_bytes(private_pem(key))


def _this_week() -> tuple[datetime, datetime]:
    now = datetime.now(UTC)
    return now - timedelta(minutes=1), now + timedelta(days=7)


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def private_pem(key: Any) -> bytes:
    """Return a key in the traditional format, as Go writes it."""
    encoded: bytes = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    return encoded


@dataclass
class ApiServer:
    """A started kube-apiserver, and requests to it as system:masters or with a token."""

    process: subprocess.Popen[bytes]
    port: int
    certificates: Path

    def call(self, method: str, path: str, body: Any = None, *, token: str = "") -> tuple[int, Any]:
        context = ssl.create_default_context(cafile=str(self.certificates / "serving-ca.crt"))
        headers = {"Content-Type": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        else:
            context.load_cert_chain(self.certificates / "user.crt", self.certificates / "user.key")
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(
            f"https://127.0.0.1:{self.port}{path}", data=data, method=method, headers=headers
        )
        try:
            with urllib.request.urlopen(request, context=context, timeout=PATIENCE) as answer:
                is_watch = "watch=true" in path
                return answer.status, json.loads(answer.readline() if is_watch else answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)


def prepare_certificates(folder: Path) -> None:
    """Write the files that envtest writes into --cert-dir before the start."""
    serving, users, accounts = TinyCa(), TinyCa(), TinyCa()
    serving.issue(folder, "apiserver", "kube-apiserver", server=True)
    users.issue(folder, "user", "default", "system:masters")
    (folder / "serving-ca.crt").write_bytes(pem(serving.certificate))
    (folder / "client-cert-auth-ca.crt").write_bytes(pem(users.certificate))
    (folder / "sa-signer.crt").write_bytes(pem(accounts.certificate))
    (folder / "sa-signer.key").write_bytes(private_pem(accounts.key))


@contextlib.contextmanager
def etcd(folder: Path, data: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run the etcd program until the block ends, and check that it stops by SIGTERM."""
    url = f"http://127.0.0.1:{port}"
    flags = [f"--listen-peer-urls=http://127.0.0.1:{free_port()}", f"--data-dir={data}", f"--listen-client-urls={url}"]
    flags += [f"--advertise-client-urls={url}", "--unsafe-no-fsync=true"]
    with program([folder / "etcd", *flags]) as process:
        wait_for(f"{url}/health", process)
        yield process


@contextlib.contextmanager
def api_server(
    folder: Path, certificates: Path, etcd_port: int, *extra: str, port: int = 0, env: Any = None
) -> Iterator[ApiServer]:
    """Run kube-apiserver with the flags of envtest until the block ends, and check that it stops by SIGTERM."""
    port = port or free_port()
    flags = [
        "--allow-privileged=true",
        "--authorization-mode=RBAC",
        "--bind-address=127.0.0.1",
        f"--cert-dir={certificates}",
        f"--client-ca-file={certificates / 'client-cert-auth-ca.crt'}",
        "--disable-admission-plugins=ServiceAccount",
        f"--etcd-servers=http://127.0.0.1:{etcd_port}",
        f"--secure-port={port}",
        f"--service-account-issuer=https://127.0.0.1:{port}/",
        f"--service-account-key-file={certificates / 'sa-signer.crt'}",
        f"--service-account-signing-key-file={certificates / 'sa-signer.key'}",
        "--service-cluster-ip-range=10.0.0.0/24",
    ]
    with program([folder / "kube-apiserver", *flags, *extra], env) as process:
        wait_for(f"https://127.0.0.1:{port}/healthz", process)
        yield ApiServer(process, port, certificates)


@contextlib.contextmanager
def program(command: list[Any], env: Any = None) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, stderr=subprocess.PIPE, env=env)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        _, message = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, message.decode()


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    """Poll a health page until it answers 200, as envtest does."""
    context = ssl._create_unverified_context()
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        assert process.poll() is None, process.stderr.read().decode() if process.stderr else ""
        with contextlib.suppress(OSError), urllib.request.urlopen(url, context=context, timeout=PATIENCE) as answer:
            if answer.status == 200:
                return
        time.sleep(0.02)
    raise TimeoutError(f"{url} is not ready")
