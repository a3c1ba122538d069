"""The programs of `pinnace envtest`, started as fabric8's kube-api-test starts them: its flags, files and order.

It differs from envtest: flags with one dash and with a space before the value, both programs started at once, a serving
certificate and a client certificate that are their own CAs, and an end by SIGKILL.
"""

from __future__ import annotations

import os
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from tests.free_ports import free_port
from tests.machine import need
from tests.testing.envtest.suite import ApiServer, pem, private_pem
from tests.waiting import until

from pinnace.testing.envtest.folder import write_folder

NAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")


def write_self_signed(folder: Path, file: str, subject: str, *names: x509.GeneralName) -> None:
    """Write FILE.crt and FILE.key: a certificate without any extension but its names, signed by its own key."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name.from_rfc4514_string(subject)
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), int(now.timestamp() * 1000))
    builder = builder.not_valid_before(now - timedelta(seconds=1)).not_valid_after(now + timedelta(days=365))
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    (folder / f"{file}.crt").write_bytes(pem(builder.sign(key, hashes.SHA256())))
    (folder / f"{file}.key").write_bytes(private_pem(key))


@dataclass
class KubeApiTest:
    """Both programs, as kube-api-test runs them."""

    programs: Path
    directory: Path
    etcd: subprocess.Popen[bytes]
    server: ApiServer

    def is_ready(self) -> bool:
        """Ask with the client certificate, as every request of kube-api-test."""
        assert self.server.process.poll() is None, self.server.process.returncode
        try:
            request = f"https://127.0.0.1:{self.server.port}/readyz"
            context = self.context(ssl._create_unverified_context())
            with urllib.request.urlopen(request, context=context, timeout=60) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def context(self, context: ssl.SSLContext) -> ssl.SSLContext:
        context.load_cert_chain(self.directory / "client.crt", self.directory / "client.key")
        return context

    def kubectl(self, *args: str) -> subprocess.CompletedProcess[str]:
        flags = [
            f"--client-certificate={self.directory / 'client.crt'}",
            f"--client-key={self.directory / 'client.key'}",
            f"--certificate-authority={self.directory / 'apiserver.crt'}",
            f"--server=https://127.0.0.1:{self.server.port}",
            "--request-timeout=30s",
        ]
        path = f"{Path(need('kubectl')).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "KUBECONFIG": str(self.directory / ".kubeconfig")}
        command = [str(self.programs / "kubectl"), *flags, *args]
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)


@contextmanager
def started(programs: Path, directory: Path) -> Iterator[KubeApiTest]:
    port, peers, etcd_port = free_port(), f"http://localhost:{free_port()}", free_port()
    url = f"http://0.0.0.0:{etcd_port}"
    etcd_flags = ["-data-dir", str(directory / "data"), "-wal-dir", str(directory / "wal")]
    etcd_flags += ["--listen-client-urls", url, "--advertise-client-urls", url]
    etcd_flags += ["--initial-cluster", f"default={peers}"]
    etcd_flags += ["--initial-advertise-peer-urls", peers, "--listen-peer-urls", peers]
    key, certificate = str(directory / "apiserver.key"), str(directory / "apiserver.crt")
    flags = ["--cert-dir", str(directory), "--secure-port", str(port), "--etcd-servers", url]
    flags += ["--authorization-mode", "RBAC", "--service-account-issuer", "https://localhost"]
    flags += ["--service-account-signing-key-file", key, "--service-account-signing-key-file", key]
    flags += ["--service-account-key-file", key, "--service-account-issuer", certificate]
    flags += ["--disable-admission-plugins", "ServiceAccount", "--client-ca-file", str(directory / "client.crt")]
    flags += ["--service-cluster-ip-range", "10.0.0.0/24", "--allow-privileged"]
    etcd = subprocess.Popen([programs / "etcd", *etcd_flags])
    server = subprocess.Popen([programs / "kube-apiserver", *flags])  # It does not wait for etcd.
    try:
        yield KubeApiTest(programs, directory, etcd, ApiServer(server, port, directory))
    finally:
        for process in (server, etcd):
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("store"), "1.36")


def test_kube_api_test_starts_uses_and_kills_the_programs(programs: Path, tmp_path: Path) -> None:
    need("kubectl")
    for name in ("data", "wal"):
        (tmp_path / name).mkdir()
    address = x509.IPAddress(ip_address("127.0.0.1"))
    write_self_signed(tmp_path, "apiserver", "CN=example.org", address, *(x509.DNSName(name) for name in NAMES))
    write_self_signed(tmp_path, "client", "O=system:masters,CN=kubeapitest")
    with started(programs, tmp_path) as run:
        until(run.is_ready)
        result = run.kubectl("get", "ns", "default")
        assert result.returncode == 0, result.stderr
        assert "default   Active" in result.stdout
        user = run.kubectl("auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
        assert user.stdout == "kubeapitest", user.stderr
        made = run.kubectl("create", "configmap", "settings", "--from-literal=a=b")
        assert made.returncode == 0, made.stderr
    with started(programs, tmp_path) as again:  # Nothing of the killed programs stands in the way.
        until(again.is_ready)
