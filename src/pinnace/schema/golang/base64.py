"""Bytes inside JSON: read as Go reads them, with its words for what cannot be read."""

from __future__ import annotations

import binascii

_ALPHABET = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")


def canonical_base64(text: str) -> str:
    """The same bytes, encoded without line breaks and with clean padding. Raises ValueError with Go's sentence."""
    try:
        encoded = binascii.b2a_base64(binascii.a2b_base64(text, strict_mode=True), newline=False).decode()
    except ValueError:
        encoded = ""
    if len(encoded) == len(text):  # Python's strictness overlooks surplus padding.
        return encoded
    _check(text)
    return binascii.b2a_base64(binascii.a2b_base64(text), newline=False).decode()


def _check(text: str) -> None:
    """Find the place that Go would complain about: offsets are bytes of the text, line breaks counted."""
    held = 0  # How many characters of the present group of four were read.
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
