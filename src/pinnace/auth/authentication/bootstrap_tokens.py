"""Tokens for machines that join: kept as secrets in kube-system, good until they expire or are deleted."""

from __future__ import annotations

import hmac
import re
from base64 import b64decode
from collections.abc import Sequence
from datetime import datetime

from pinnace.auth.authentication.authenticators import Bearer
from pinnace.model.objects import Object
from pinnace.model.users import User, authenticated
from pinnace.model.watched_objects import WatchedObjects
from pinnace.process.clock import Clock

NAMESPACE = "kube-system"
TYPE = "bootstrap.kubernetes.io/token"
GROUP = "system:bootstrappers"
_TOKEN = re.compile(r"([a-z0-9]{6})\.([a-z0-9]{16})", re.ASCII)
_EXTRA_GROUP = re.compile(r"system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]", re.ASCII)


class BootstrapTokens:
    def __init__(self, secrets: WatchedObjects, clock: Clock) -> None:
        self._secrets = secrets
        self._clock = clock

    def find(self, token: str, audiences: Sequence[str] = ()) -> Bearer | None:
        parts = _TOKEN.fullmatch(token)
        if parts is None:
            return None
        name, secret_part = parts.groups()
        secret = self._secrets.get(f"{NAMESPACE}/bootstrap-token-{name}")
        if secret is None or secret.get("type") != TYPE or secret["metadata"].get("deletionTimestamp"):
            return None
        if not hmac.compare_digest(_value(secret, "token-secret").encode(), secret_part.encode()):
            return None
        if _value(secret, "token-id") != name or _value(secret, "usage-bootstrap-authentication") != "true":
            return None
        groups = [group for group in _value(secret, "auth-extra-groups").split(",") if group]
        if self._has_expired(secret) or not all(_EXTRA_GROUP.fullmatch(group) for group in groups):
            return None
        return Bearer(authenticated(User(f"system:bootstrap:{name}", (GROUP, *sorted(groups)))))

    def _has_expired(self, secret: Object) -> bool:
        until = _value(secret, "expiration")
        if not until:
            return False
        try:
            return datetime.fromisoformat(until) <= self._clock.now()
        except (ValueError, TypeError):
            return True


def _value(secret: Object, key: str) -> str:
    return b64decode((secret.get("data") or {}).get(key) or "").decode("latin-1")
