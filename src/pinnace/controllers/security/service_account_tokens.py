"""Fills Secrets of the service account token type, and deletes them with their account."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator

from pinnace.client.client import Client
from pinnace.model import errors
from pinnace.model.objects import Key
from pinnace.model.typed_objects import Secret, ServiceAccount
from pinnace.reconcile.controller import Controller
from pinnace.reconcile.manager import Manager

TYPE = "kubernetes.io/service-account-token"
NAME, UID = "kubernetes.io/service-account.name", "kubernetes.io/service-account.uid"
_OF_TYPE = f"type={TYPE}"
_BY_ACCOUNT = "token-account"

TokenOf = Callable[[ServiceAccount, Secret], str]
"""Returns the token of an account, to be kept in a Secret."""


class ServiceAccountTokenController:
    """Watches accounts, and Secrets of one type only."""

    def __init__(self, manager: Manager, client: Client, *, token_of: TokenOf, ca: str) -> None:
        """`ca` is in PEM."""
        self._client = client
        self._token_of = token_of
        self._ca = b64encode(ca.encode()).decode()
        self._secrets = manager.cache(Secret, fields=_OF_TYPE)
        self._secrets.add_index(_BY_ACCOUNT, _account_of)
        self._accounts = manager.cache(ServiceAccount, metadata_only=True)
        self.controller = Controller("tokens", self._reconcile)
        self.controller.for_(Secret, fields=_OF_TYPE)
        self.controller.watches(ServiceAccount, self._tokens_of, metadata_only=True)

    def _tokens_of(self, account: ServiceAccount) -> Iterable[Key]:
        metadata = account["metadata"]
        return self._secrets.keys_by_index(_BY_ACCOUNT, f"{metadata['namespace']}/{metadata['name']}")

    async def _reconcile(self, key: Key) -> None:
        secret = self._secrets.get(key)
        if secret is None:
            await self._forget(key)
            return
        account = await self._account(secret)
        if account is None:
            try:
                await self._client.delete(Secret, key.name, namespace=key.namespace, uid=secret["metadata"]["uid"])
            except (errors.NotFound, errors.Conflict):
                return  # Another client wrote first.
        elif self._fill(secret, account):
            await self._client.update(secret)

    async def _account(self, secret: Secret) -> ServiceAccount | None:
        """Return the account of a Secret; read it from the server before the Secret is deleted for lack of it."""
        metadata = secret["metadata"]
        annotations = metadata.get("annotations") or {}
        name, uid = annotations.get(NAME, ""), annotations.get(UID, "")
        account = self._accounts.get(Key(metadata["namespace"], name))
        if account is None or (uid and account["metadata"]["uid"] != uid):
            account = await self._client.get_or_none(ServiceAccount, name, namespace=metadata["namespace"])
        return account if account is not None and uid in ("", account["metadata"]["uid"]) else None

    def _fill(self, secret: Secret, account: ServiceAccount) -> bool:
        """Add missing entries; return whether there were any."""
        data = secret.get("data") or {}
        wanted = {**data, "ca.crt": self._ca}
        if not data.get("namespace"):
            wanted["namespace"] = b64encode(secret["metadata"]["namespace"].encode()).decode()
        if not data.get("token"):
            wanted["token"] = b64encode(self._token_of(account, secret).encode()).decode()
        if wanted == data:
            return False
        secret["data"] = wanted
        annotations = secret["metadata"].setdefault("annotations", {})
        annotations |= {NAME: account["metadata"]["name"], UID: account["metadata"]["uid"]}
        return True

    async def _forget(self, gone: Key) -> None:
        """Remove a deleted Secret from the accounts that reference it. Few do, so they are searched, not remembered."""
        for account in await self._client.list(ServiceAccount, namespace=gone.namespace):
            mentioned = account.get("secrets") or []
            kept = [reference for reference in mentioned if reference.get("name") != gone.name]
            if kept == mentioned:
                continue
            account["secrets"] = kept
            try:
                await self._client.update(account)
            except errors.NotFound:
                continue


def _account_of(secret: Secret) -> Iterator[str]:
    metadata = secret["metadata"]
    yield f"{metadata['namespace']}/{(metadata.get('annotations') or {}).get(NAME, '')}"
