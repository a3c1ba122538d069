"""The names of images: registry, repository, tag and digest, with Docker's defaults."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from pinnace.node.errors import InvalidImageName

DEFAULT_REGISTRY = "docker.io"
_MAX_LENGTH = 255
_COMPONENT = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_repository = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")
_tag = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_digest = re.compile(r"sha256:[0-9a-f]{64}")
_registry = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?|\[[0-9a-fA-F:]{2,45}\])(?::[0-9]{1,5})?")


@dataclass(frozen=True, slots=True)
class Reference:
    """A parsed name. One of tag and digest is set, or both."""

    registry: str
    repository: str
    tag: str = ""
    digest: str = ""

    @property
    def name(self) -> str:
        return f"{self.registry}/{self.repository}"

    @property
    def version(self) -> str:
        """The digest if there is one, else the tag: the last part of a manifest's URL."""
        return self.digest or self.tag

    @property
    def is_on_loopback(self) -> bool:
        """Whether the registry is on this machine."""
        host = self.registry.rpartition(":")[0] if re.search(r":\d+$", self.registry) else self.registry
        return is_loopback(host)

    def __str__(self) -> str:
        return f"{self.name}{':' + self.tag if self.tag else ''}{'@' + self.digest if self.digest else ''}"


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine itself, without asking a name server."""
    bare = host.strip("[]")
    if bare == "localhost":
        return True
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return False


def parse_reference(name: str) -> Reference:
    """Parse a name as Docker does: docker.io, library/ and latest are the defaults. Raise InvalidImageName."""
    rest, _, digest = name.partition("@")
    registry, slash, path = rest.partition("/")
    if not slash or not ("." in registry or ":" in registry or registry == "localhost"):
        registry, path = DEFAULT_REGISTRY, rest
    repository, colon, tag = path.partition(":")
    if registry in (DEFAULT_REGISTRY, "index.docker.io") and "/" not in repository:
        registry, repository = DEFAULT_REGISTRY, f"library/{repository}"
    if (
        not _repository.fullmatch(repository)
        or len(repository) > _MAX_LENGTH
        or not _registry.fullmatch(registry)
        or (colon and not _tag.fullmatch(tag))
        or ("@" in name and not _digest.fullmatch(digest))
    ):
        hint = ": repository name must be lowercase" if name != name.lower() else ""
        raise InvalidImageName(f'couldn\'t parse image name "{name}": invalid reference format{hint}')
    return Reference(registry, repository, tag or ("" if digest else "latest"), digest)
