"""How etcd is reached: its members, the certificates, and the user."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from pinnace.store.store import StoreError

SCHEME = "etcd://"
DEFAULT_PORT = 2379


class EtcdSettingsError(StoreError):
    """The address or a file for the connection to etcd cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdSettings:
    """The members as (host, port), and what proves who they and we are. TLS is used if there is any file for it."""

    endpoints: tuple[tuple[str, int], ...]
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    user: str = ""
    password_file: Path | None = None
    root: str = ""
    """Put before every key."""

    @property
    def is_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.ca_file is not None or self.certificate_file is not None

    def tls_context(self) -> ssl.SSLContext | None:
        """Read the certificates, anew for each connection because they may have been renewed. None without TLS."""
        if not self.is_tls:
            return None
        try:
            context = ssl.create_default_context(cafile=str(self.ca_file) if self.ca_file else None)
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # On since Python 3.13; etcd's own clients are not strict.
            if self.certificate_file is not None:
                context.load_cert_chain(self.certificate_file, self.key_file)
        except (OSError, ssl.SSLError) as error:
            files = ", ".join(str(file) for file in (self.ca_file, self.certificate_file, self.key_file) if file)
            raise EtcdSettingsError(f"the certificates for etcd cannot be used ({error}); check {files}") from error
        context.set_alpn_protocols(["h2"])
        return context

    def password(self) -> str:
        """Read the password of the user."""
        if self.password_file is None:
            return ""
        try:
            return self.password_file.read_text().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise EtcdSettingsError(
                f"the password for etcd cannot be read ({error}); check {self.password_file}"
            ) from error


def parse_endpoints(address: str) -> tuple[tuple[str, int], ...]:
    """Parse etcd://host:port[,host:port]… Raise EtcdSettingsError."""
    if not address.startswith(SCHEME):
        raise EtcdSettingsError(f"expected a store such as etcd://127.0.0.1:2379, found {address!r}")
    endpoints = []
    for member in address.removeprefix(SCHEME).rstrip("/").split(","):
        try:
            parts = urlsplit(f"//{member}")
            port = parts.port or DEFAULT_PORT
        except ValueError as error:
            raise EtcdSettingsError(f"{member!r} is no address of etcd ({error}); write host:port") from error
        if not parts.hostname or parts.path or parts.query or parts.username:
            raise EtcdSettingsError(f"{member!r} is no address of etcd; write etcd://host:port[,host:port]")
        endpoints.append((parts.hostname, port))
    return tuple(endpoints)
