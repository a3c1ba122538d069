"""The keys that stored values are sealed with: read from a file, the first one seals, all of them open."""

from __future__ import annotations

import binascii
import os
import re
from base64 import b64decode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from pinnace.store.store import Damaged, StoreError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

SEALED = b"k8s:enc:aesgcm:v1:"
"""How a value begins that these keys sealed, in Kubernetes' own format: the name, a colon, nonce and text follow."""
ANY_SEALED = b"k8s:enc:"
SECRETS = "/registry/core/secrets/"
CREDENTIALS = "/pinnace/credentials"
"""How the key of the credentials begins that all servers on one etcd have in common."""

_NONCE_BYTES = 12
_KEY_BYTES = (16, 24, 32)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)
_HOW = "write one line NAME:KEY per key, the newest first, where KEY is 32 random bytes in base64"


class KeyFileError(StoreError):
    """The file with the keys cannot be used. No key is ever part of the message."""


class MissingKey(StoreError):
    """A value is sealed with a key that is not at hand."""

    def __init__(self, key: str, name: str) -> None:
        super().__init__(
            f"{key!r} is encrypted with the key {name!r}, which is not in the encryption key file; add that key again"
        )


@dataclass(frozen=True, slots=True)
class EncryptionKeys:
    """Named AES keys. `keys` is in order: its first seals what is written. They must open every sealed value."""

    keys: Mapping[str, bytes] = field(repr=False)
    prefixes: tuple[str, ...] = (SECRETS, CREDENTIALS)
    """How the keys of values begin that are sealed."""
    is_tolerant: ClassVar[bool] = False
    _ciphers: dict[str, AESGCM] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - only for those who encrypt

        if not self.keys:
            raise KeyFileError(f"there is no encryption key; {_HOW}")
        object.__setattr__(self, "keys", MappingProxyType(dict(self.keys)))
        self._ciphers.update((name, AESGCM(key)) for name, key in self.keys.items())

    @property
    def newest(self) -> str:
        """The name of the key that seals."""
        return next(iter(self.keys))

    def name_for(self, key: str) -> str:
        """Return what a value of the key is sealed with now; empty for nothing."""
        return self.newest if key.startswith(self.prefixes) else ""

    def name_of(self, key: str, stored: bytes) -> str:
        """Return what a value was sealed with."""
        return sealing_key(stored) if stored.startswith(SEALED) else ""

    def concerns(self, key: str, stored: bytes) -> bool:
        """Whether a stored value must be opened."""
        return stored.startswith(ANY_SEALED)

    def lacks_key(self, key: str, stored: bytes) -> bool:
        """Return False: all keys are known."""
        return False

    async def fetch(self, values: Iterable[tuple[str, bytes]]) -> None:
        """Do nothing: all keys are known."""

    def seal(self, key: str, value: bytes) -> bytes:
        """Encrypt a value with the newest key, bound to the store's `key`, if it is to be sealed."""
        # A value that only looks sealed is sealed, too, or it could not be read back.
        if not key.startswith(self.prefixes) and not value.startswith(ANY_SEALED):
            return value
        nonce = os.urandom(_NONCE_BYTES)  # Never used twice: a key is good for 2**32 writes, then it is to be rotated.
        name = self.newest
        return b"%b%b:%b%b" % (SEALED, name.encode(), nonce, self._ciphers[name].encrypt(nonce, value, key.encode()))

    def open(self, key: str, sealed: bytes) -> bytes:
        """Decrypt a value. Raise `MissingKey` if its key is unknown, `Damaged` if it was not sealed with this key."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415

        name = sealing_key(sealed)
        cipher = self._ciphers.get(name) if sealed.startswith(SEALED) else None
        if cipher is None:
            raise MissingKey(key, name)
        start = len(SEALED) + len(name.encode()) + 1
        nonce, text = sealed[start : start + _NONCE_BYTES], sealed[start + _NONCE_BYTES :]
        try:
            return cipher.decrypt(nonce, text, key.encode())
        except (InvalidTag, ValueError):
            raise Damaged(
                f"{key!r} cannot be decrypted with the key {name!r}: the encryption key file has another key under "
                "that name, or the stored value was altered; put the old key back, or restore a backup"
            ) from None


def sealing_key(sealed: bytes) -> str:
    """Return the name of the key that a sealed value needs; with its provider, if that is not AES-GCM."""
    if not sealed.startswith(SEALED):
        return b":".join(sealed[:256].split(b":", 5)[2:5]).decode("utf-8", "replace")
    end = sealed.find(b":", len(SEALED))
    return sealed[len(SEALED) : end if end >= 0 else len(SEALED)].decode("utf-8", "replace")


def read_keys(path: Path) -> EncryptionKeys:
    """Return the keys of a file: lines of NAME:BASE64, the newest first; empty lines and #comments are skipped."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not text"
        raise KeyFileError(f"the encryption key file {path} cannot be read ({why}); {_HOW}") from None
    keys: dict[str, bytes] = {}
    for number, line in enumerate(map(str.strip, lines), start=1):
        if not line or line.startswith("#"):
            continue
        name, colon, encoded = line.partition(":")
        where = f"{path}, line {number}"
        if not colon or not _NAME.fullmatch(name):
            raise KeyFileError(f"{where}: expected NAME:KEY; {_HOW}")
        if name in keys:
            raise KeyFileError(f"{where}: there is a key {name!r} already; every key needs a name of its own")
        try:
            key = b64decode(encoded.strip(), validate=True)
        except (binascii.Error, ValueError):
            raise KeyFileError(f"{where}: the key {name!r} is not base64; {_HOW}") from None
        if len(key) not in _KEY_BYTES:
            raise KeyFileError(f"{where}: the key {name!r} has {len(key)} bytes, expected 32 (or 16, or 24)")
        keys[name] = key
    if not keys:
        raise KeyFileError(f"the encryption key file {path} has no key; {_HOW}")
    return EncryptionKeys(keys)
