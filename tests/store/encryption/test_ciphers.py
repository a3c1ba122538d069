"""Values that Kubernetes 1.37 has encrypted open here, and those of ours do not open if anything was changed."""

from __future__ import annotations

from base64 import b64decode
from hashlib import sha256

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from pinnace.store.encryption.ciphers import AesCbc, AesGcm, CannotOpen, Cipher, DerivedAesGcm, Secretbox
from pinnace.store.encryption.kms import decode_envelope

KEY = b"abcdefghijklmnopqrstuvwxyz012345"
OF_KUBERNETES = {
    "secretbox": (
        "/registry/secrets/default/rec",
        "azhzOmVuYzpzZWNyZXRib3g6djE6a2V5MTrA0FLadWQLXoEZk1DBtz6YpAL9USCvNIhgE6XjNlNvPG+U0DAUM3kqraGkUSEyXDPO"
        "p8M8MimTiYLrr6TmtpA6Zap5j/6rpkaI+bl1sl32fad30gGDIAxU1s2s0O1psSFBHqjbsQICMsW6woyWnJY3+K8/bRXY8s9WXP7M"
        "lO9CwvTdGjT7fvgeOZU32l7lg1FeN0yw5rS/X14ZLDKDtD7ZG2BZTFZqLfkdFiZb28YaMBv8R7QKt/q05yieCa1TCoPuwYK/hTi/"
        "Tmk9ezvIjsBJ/e+QnWtNBxQ=",
    ),
    "aescbc": (
        "/registry/configmaps/default/rec",
        "azhzOmVuYzphZXNjYmM6djE6a2V5MToN6xlLpkSWV/0+Womh6ZX8F+APBQ80mMuRfUKFymmefvly4wdp1ongVBKPi9O5qDN2zc6J"
        "HlYgIkxZXl6yKIysAUHnMg0XSE4YBTiIvg6eER3f+0Y6g09w5ybPa6IcTb2yxPZGvnnKvXgJRdSDaJV8wn8atKpj8bUL9jyBYtP7"
        "pA==",
    ),
    "aesgcm": (
        "/registry/limitranges/default/rec",
        "azhzOmVuYzphZXNnY206djE6a2V5MTqp5UfRkFcCjNE8ezuj1AcN2oDmSPCsjsyIMfN1/OEm2R3Yn0rLJc0ayFKvGIbTS3JiXRJ2"
        "eodnEIfY9t2Tlh6drDBAydi7zPQikF/FXnHRC/oloVAoVCU4g23xxoWCoQoxZfVTTZUCtV8BuWNGIz6T1r/yLd1RrdYjB9ptD6n1"
        "Bsd7",
    ),
    "kms": (
        "/registry/resourcequotas/default/rec",
        "azhzOmVuYzprbXM6djI6b3RoZXI6CqcBbwMveH/j3DQziT6+mpA+kyA3nYmFWeAmJJ/B+3vaNNjQ5W9Hw3C16tVCuQo8TFDOXpct"
        "uLAUrQ90BCoEScxmeF0auwl1jWwLrnYQgBUQTYNMR7UH/L+EzpsOjnW3JocsN5PxNVMzIL3s7fjQaJyE7DLQAtsK8cA+LMd0KEHe"
        "r/T2bJnsws/dEeW3KAhBuNcAtcpLDu1POrSCnv7HUOo8oIzIjd8JoHYSA2stMho8s/xJYH8qmYIMURyJi7XgBzdCFMgf7rWCEtfF"
        "zllYoInty/uuMNMx34N0HTOdBJ98BjhWVfTSvCpQBhdqIhgKE3ZlcnNpb24uZXhhbXBsZS5jb20SATEoAQ==",
    ),
}
"""Values of kube-apiserver 1.37, with the key above, and with a plug-in whose keys are hashes of their IDs."""


def kind_of(cipher: Cipher) -> str:
    return type(cipher).__name__


CIPHERS: dict[str, type[AesGcm | AesCbc | Secretbox]] = {"secretbox": Secretbox, "aescbc": AesCbc, "aesgcm": AesGcm}


@pytest.mark.parametrize("kind", CIPHERS)
def test_a_value_that_kubernetes_stored_opens(kind: str) -> None:
    path, encoded = OF_KUBERNETES[kind]
    stored, prefix = b64decode(encoded), f"k8s:enc:{kind}:v1:key1:".encode()
    assert stored.startswith(prefix)
    assert CIPHERS[kind](KEY).open(stored.removeprefix(prefix), path.encode()).startswith(b"k8s\0")


def test_an_envelope_of_kubernetes_opens_with_the_seed_that_the_plug_in_returns() -> None:
    path, encoded = OF_KUBERNETES["kms"]
    envelope = decode_envelope(b64decode(encoded).removeprefix(b"k8s:enc:kms:v2:other:"))
    assert (envelope.key_id, envelope.source_type) == ("k-2", 1)
    assert envelope.annotations == {"version.example.com": b"1"}
    seed = AESGCM(sha256(b"k-2").digest()).decrypt(envelope.source[:12], envelope.source[12:], b"")
    assert DerivedAesGcm(seed).open(envelope.text, path.encode()).startswith(b"k8s\0")


def test_an_envelope_is_encoded_as_it_was_read() -> None:
    stored = b64decode(OF_KUBERNETES["kms"][1]).removeprefix(b"k8s:enc:kms:v2:other:")
    assert decode_envelope(stored).encode() == stored


@pytest.mark.parametrize("size", [0, 1, 15, 16, 31, 32, 33, 63, 64, 65, 4096, 1 << 20])
@pytest.mark.parametrize("cipher", [Secretbox(KEY), AesCbc(KEY), AesGcm(KEY), DerivedAesGcm(KEY)], ids=kind_of)
def test_values_of_every_size_open_again(cipher: Cipher, size: int) -> None:
    value = bytes(range(256)) * (size // 256) + bytes(size % 256)
    sealed = cipher.seal(value, b"a")
    assert cipher.open(sealed, b"a") == value
    assert sealed != cipher.seal(value, b"a")


@pytest.mark.parametrize("cipher", [Secretbox(KEY), AesGcm(KEY), DerivedAesGcm(KEY)], ids=kind_of)
def test_a_value_that_was_altered_or_cut_does_not_open(cipher: Cipher) -> None:
    sealed = cipher.seal(b"secret", b"a")
    for bad in (sealed[:-1] + bytes([sealed[-1] ^ 1]), sealed[:-1], sealed[:20], b""):
        with pytest.raises(CannotOpen):
            cipher.open(bad, b"a")


@pytest.mark.parametrize("cipher", [AesGcm(KEY), DerivedAesGcm(KEY)], ids=kind_of)
def test_a_value_under_another_key_of_the_store_does_not_open(cipher: Cipher) -> None:
    with pytest.raises(CannotOpen, match="cipher: message authentication failed"):
        cipher.open(cipher.seal(b"secret", b"a"), b"b")


@pytest.mark.parametrize("bad", [b"", b"\xff", b"\x0a\x05", b"\x0a\x01a", b"\x28\x07", bytes(100)])
def test_other_bytes_than_an_envelope_are_refused(bad: bytes) -> None:
    with pytest.raises(CannotOpen):
        decode_envelope(bad)
