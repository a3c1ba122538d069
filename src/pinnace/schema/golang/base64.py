"""Base64 in JSON: decoded as in Go, with Go's error messages."""

from __future__ import annotations

import binascii

_ALPHABET = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")


def canonical_base64(text: str) -> str:
    """Return the same bytes, encoded without line breaks and with clean padding. Raise ValueError with Go's message."""
    try:
        encoded = binascii.b2a_base64(binascii.a2b_base64(text, strict_mode=True), newline=False).decode()
    except ValueError:
        encoded = ""
    if len(encoded) == len(text):  # Python's strict mode accepts surplus padding.
        return encoded
    _check(text)
    return binascii.b2a_base64(binascii.a2b_base64(text), newline=False).decode()


def _check(text: str) -> None:
    """Raise ValueError at the offset that Go reports: in bytes of the text, line breaks included."""
    held = 0  # How many characters of the current group of four are read.
    padded = 0
    group_start = 0
    offset = 0
    for letter in text:
        if letter in "\r\n":
            offset += 1
            continue
        if padded and (padded == 2 or held + padded == 4):
            raise _illegal(offset)
        if letter == "=":
            if held < 2:
                raise _illegal(offset)
            padded += 1
        elif padded:
            raise _illegal(offset - padded)
        elif letter not in _ALPHABET:
            raise _illegal(offset)
        else:
            if held == 0:
                group_start = offset
            held = (held + 1) % 4
        offset += len(letter.encode("utf-8", "surrogatepass"))
    if padded and held + padded != 4:
        raise _illegal(offset)
    if not padded and held:
        raise _illegal(group_start)


def _illegal(offset: int) -> ValueError:
    return ValueError(f"illegal base64 data at input byte {offset}")
