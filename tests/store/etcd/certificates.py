"""Certificates for an etcd with TLS and for its clients."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.store.etcd.processes import EtcdMember

from pinnace.auth.certificates.authority import issue, new_ca
from pinnace.store.etcd.settings import EtcdSettings

_LIFETIME = timedelta(days=2)


def _issued(is_expired: bool) -> datetime | None:
    return datetime.now(UTC) - timedelta(days=30) if is_expired else None


class EtcdCertificates:
    """A CA, and certificates of a server and of a client, in files that can be issued again."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ca = new_ca()
        directory.mkdir()
        self._write("ca", self._ca.certificate_pem)
        self.issue_client()
        self.issue_server()

    def issue_client(self, *, is_expired: bool = False) -> None:
        """Write a certificate for the client that is valid now, or was valid until some weeks ago."""
        user = issue(self._ca, common_name="pinnace", client=True, lifetime=_LIFETIME, now=_issued(is_expired))
        self._write("client.crt", user.certificate_pem)
        self._write("client.key", user.key_pem)

    def issue_server(self, *, is_expired: bool = False) -> None:
        """Write a certificate for the server that is valid now, or was valid until some weeks ago."""
        names, now = ("127.0.0.1",), _issued(is_expired)
        own = issue(self._ca, common_name="etcd", server_names=names, client=True, lifetime=_LIFETIME, now=now)
        self._write("server.crt", own.certificate_pem)
        self._write("server.key", own.key_pem)

    def path(self, name: str) -> Path:
        return self._directory / name

    def member(self, directory: Path) -> EtcdMember:
        """Return an etcd that requires certificates, not started."""
        flags = (
            f"--cert-file={self.path('server.crt')}",
            f"--key-file={self.path('server.key')}",
            f"--trusted-ca-file={self.path('ca')}",
            "--client-cert-auth",
        )
        return EtcdMember(directory, flags=flags, scheme="https")

    def settings(self, member: EtcdMember) -> EtcdSettings:
        return EtcdSettings(
            endpoints=(("127.0.0.1", member.port),),
            ca_file=self.path("ca"),
            certificate_file=self.path("client.crt"),
            key_file=self.path("client.key"),
        )

    def _write(self, name: str, content: bytes) -> None:
        self.path(name).write_bytes(content)
