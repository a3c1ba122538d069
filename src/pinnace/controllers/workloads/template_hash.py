"""Computes a short, stable name of a pod template: the value of `pod-template-hash` and of revision names."""

from __future__ import annotations

import hashlib

import orjson

from pinnace.model.objects import Object

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Kubernetes' safe alphabet: no vowels, so no words; no characters that look alike."""


def template_hash(template: Object, collisions: int | None = None) -> str:
    """Return the hash of a template. A collision count gives the same template another hash."""
    encoded = orjson.dumps(template, option=orjson.OPT_SORT_KEYS)
    return hash_of(encoded, collisions)


def hash_of(data: bytes, collisions: int | None = None) -> str:
    """Return 32 bits of `data` and the collision count, as a number in the safe alphabet."""
    digest = hashlib.blake2b(data, digest_size=4)
    if collisions is not None:
        digest.update(collisions.to_bytes(8, "little"))
    number = int.from_bytes(digest.digest(), "little")
    return "".join(_ALPHABET[ord(digit) % len(_ALPHABET)] for digit in str(number))
