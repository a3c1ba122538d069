"""The files of the data directory that all servers of one cluster have in common."""

from __future__ import annotations

CREDENTIALS = (
    "pki/ca.crt",
    "pki/ca.key",
    "pki/sa.key",
    "pki/front-proxy-ca.crt",
    "pki/front-proxy-ca.key",
    "token",
)
