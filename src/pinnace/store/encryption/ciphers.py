"""The ciphers of stored values, in the formats of Kubernetes: AES-CBC, AES-GCM, secretbox, AES-GCM with derived keys.

`context` is the key of the store, which the ciphers that authenticate bind a value to.
"""

from __future__ import annotations

import hmac
import os
from struct import Struct
from typing import Protocol

import numpy as np
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher as BlockCipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC
from cryptography.hazmat.primitives.padding import PKCS7
from cryptography.hazmat.primitives.poly1305 import Poly1305

_TOO_SHORT = "the stored data was shorter than the required size"
_NONCE_BYTES = 12
_BLOCK_BYTES = 16
_INFO_BYTES = SEED_BYTES = 32


class CannotOpen(Exception):
    """A value was not sealed with this key, or it was altered. The message has Kubernetes' words."""


class Cipher(Protocol):
    def seal(self, value: bytes, context: bytes) -> bytes: ...

    def open(self, sealed: bytes, context: bytes) -> bytes:
        """Raise CannotOpen."""


class AesGcm:
    """AES-GCM with random nonces: a key is good for about four billion values."""

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)

    def seal(self, value: bytes, context: bytes) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, value, context)

    def open(self, sealed: bytes, context: bytes) -> bytes:
        if len(sealed) < _NONCE_BYTES + _BLOCK_BYTES:
            raise CannotOpen(_TOO_SHORT)
        try:
            return self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], context)
        except InvalidTag:
            raise CannotOpen("cipher: message authentication failed") from None


class DerivedAesGcm:
    """AES-GCM with a key of its own for each value, derived from a seed by HKDF: the seed does not wear out."""

    def __init__(self, seed: bytes) -> None:
        if len(seed) < SEED_BYTES:
            raise CannotOpen(f"invalid seed length {len(seed)} used for key generation")
        self._seed = seed

    def seal(self, value: bytes, context: bytes) -> bytes:
        info = os.urandom(_INFO_BYTES)
        return info + AesGcm(self._derive(info)).seal(value, context)

    def open(self, sealed: bytes, context: bytes) -> bytes:
        if len(sealed) < _INFO_BYTES:
            raise CannotOpen(_TOO_SHORT)
        return AesGcm(self._derive(sealed[:_INFO_BYTES])).open(sealed[_INFO_BYTES:], context)

    def _derive(self, info: bytes) -> bytes:
        return hmac.digest(self._seed, info + b"\x01", "sha256")  # HKDF's expansion to one block of SHA-256.


class AesCbc:
    """AES-CBC: nothing is authenticated, and the context is not used."""

    def __init__(self, key: bytes) -> None:
        self._algorithm = AES(key)

    def seal(self, value: bytes, context: bytes) -> bytes:
        vector, padder = os.urandom(_BLOCK_BYTES), PKCS7(8 * _BLOCK_BYTES).padder()
        encryptor = BlockCipher(self._algorithm, CBC(vector)).encryptor()
        return vector + encryptor.update(padder.update(value) + padder.finalize()) + encryptor.finalize()

    def open(self, sealed: bytes, context: bytes) -> bytes:
        if len(sealed) < 2 * _BLOCK_BYTES:
            raise CannotOpen(_TOO_SHORT)
        if len(sealed) % _BLOCK_BYTES:
            raise CannotOpen("the stored data is not a multiple of the block size")
        decryptor = BlockCipher(self._algorithm, CBC(sealed[:_BLOCK_BYTES])).decryptor()
        padded = decryptor.update(sealed[_BLOCK_BYTES:]) + decryptor.finalize()
        unpadder = PKCS7(8 * _BLOCK_BYTES).unpadder()
        try:
            return unpadder.update(padded) + unpadder.finalize()
        except ValueError:
            raise CannotOpen("invalid padding on input") from None


_SECRETBOX_NONCE_BYTES = 24
_SALSA_BLOCK_BYTES = 64
_SIGMA = Struct("<4I").unpack(b"expand 32-byte k")
_WORDS = Struct("<4I")
_QUARTERS = (
    (0, 4, 8, 12), (5, 9, 13, 1), (10, 14, 2, 6), (15, 3, 7, 11),
    (0, 1, 2, 3), (5, 6, 7, 4), (10, 11, 8, 9), (15, 12, 13, 14),
)  # fmt: skip
"""The words that the quarter rounds of a double round of Salsa20 change: four columns, then four rows."""


class Secretbox:
    """NaCl's secretbox, XSalsa20 and Poly1305. No library of ours has XSalsa20: all blocks of a value run in numpy."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def seal(self, value: bytes, context: bytes) -> bytes:
        nonce = os.urandom(_SECRETBOX_NONCE_BYTES)
        mac_key, stream = self._stream(nonce, len(value))
        sealed = _xor(value, stream)
        return nonce + Poly1305.generate_tag(mac_key, sealed) + sealed

    def open(self, sealed: bytes, context: bytes) -> bytes:
        start = _SECRETBOX_NONCE_BYTES + _BLOCK_BYTES
        if len(sealed) < start:
            raise CannotOpen(_TOO_SHORT)
        tag, text = sealed[_SECRETBOX_NONCE_BYTES:start], sealed[start:]
        mac_key, stream = self._stream(sealed[:_SECRETBOX_NONCE_BYTES], len(text))
        try:
            Poly1305.verify_tag(mac_key, text, tag)
        except InvalidSignature:
            raise CannotOpen("output array was not large enough for encryption") from None  # As Kubernetes says it.
        return _xor(text, stream)

    def _stream(self, nonce: bytes, size: int) -> tuple[bytes, bytes]:
        """Return the key of the authenticator, and as many bytes of the key stream."""
        subkey = _hsalsa20(self._key, nonce[:16])
        stream = _salsa20(subkey, nonce[16:], 1 + size // _SALSA_BLOCK_BYTES + 1)
        return stream[:32], stream[32 : 32 + size]


def _xor(text: bytes, stream: bytes) -> bytes:
    return (np.frombuffer(text, np.uint8) ^ np.frombuffer(stream, np.uint8)).tobytes()


def _state(key: bytes, middle: bytes, blocks: int) -> np.ndarray[tuple[int, int], np.dtype[np.uint32]]:
    """Return the words of Salsa20's input, a column for each block."""
    first, second = _WORDS.unpack(key[:16]), _WORDS.unpack(key[16:])
    words = (
        _SIGMA[0], *first, _SIGMA[1], *_WORDS.unpack(middle), _SIGMA[2], *second, _SIGMA[3],
    )  # fmt: skip
    return np.repeat(np.array(words, np.uint32)[:, None], blocks, axis=1)


def _mix(words: np.ndarray[tuple[int, int], np.dtype[np.uint32]]) -> None:
    """Apply the twenty rounds in place."""
    rows = list(words)
    for _ in range(10):
        for a, b, c, d in _QUARTERS:
            for target, left, right, bits in ((b, a, d, 7), (c, b, a, 9), (d, c, b, 13), (a, d, c, 18)):
                total = rows[left] + rows[right]
                rows[target] ^= (total << np.uint32(bits)) | (total >> np.uint32(32 - bits))


def _hsalsa20(key: bytes, nonce: bytes) -> bytes:
    words = _state(key, nonce, 1)
    _mix(words)
    return words[[0, 5, 10, 15, 6, 7, 8, 9], 0].astype("<u4").tobytes()


def _salsa20(key: bytes, nonce: bytes, blocks: int) -> bytes:
    start = _state(key, nonce + bytes(8), blocks)
    start[8] = np.arange(blocks, dtype=np.uint32)  # Stored values are far below the 2**32 blocks of this word.
    words = start.copy()
    _mix(words)
    return (words + start).T.astype("<u4").tobytes()
