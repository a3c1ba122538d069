"""The credentials that all servers on one etcd have in common, kept in etcd: CAs, token key, administrator's token.

The first server publishes its own; each further one takes them over before it makes its serving certificate. They are
encrypted as Secrets are. Access to etcd is access to all Secrets anyway.
"""

from __future__ import annotations

from pathlib import Path

import orjson

from pinnace.auth.certificates.authority import CREDENTIALS
from pinnace.process.grpc.errors import CallError
from pinnace.process.private_files import write_private
from pinnace.store import encryption_keys
from pinnace.store.encrypted import Encryption
from pinnace.store.encryption_keys import ANY_SEALED, MissingKey, sealing_key
from pinnace.store.etcd import wire
from pinnace.store.etcd.client import EtcdClient
from pinnace.store.etcd.settings import EtcdSettings
from pinnace.store.etcd.transactions import unreachable
from pinnace.store.store import Damaged


class SharedCredentials:
    """Files below the data directory, and their copy in etcd."""

    def __init__(self, settings: EtcdSettings, directory: Path, encryption: Encryption | None) -> None:
        self._settings = settings
        self._directory = directory
        self._encryption = encryption
        self._key = f"{encryption_keys.CREDENTIALS}{settings.root}"
        self._adopted = 0
        """etcd's revision of the files that were adopted; 0 if it had none."""

    async def adopt(self) -> None:
        """Write the files as etcd has them; leave them alone if it has none. Raise a StoreError."""
        client = EtcdClient(self._settings)
        try:
            files, self._adopted = await self._read(client)
        except CallError as error:
            raise unreachable(client, error) from error
        finally:
            client.close()
        self._write(files)

    async def publish(self) -> bool:
        """Store the files if they are not those that were adopted.

        Return False if another server has stored its files since: adopt them.
        """
        client = EtcdClient(self._settings)
        try:
            there, _ = await self._read(client)
            files = {name: (self._directory / name).read_text() for name in CREDENTIALS}
            if there == files:
                return True
            value = orjson.dumps(files)
            if self._encryption is not None:
                value = self._encryption.seal(self._key, value)
            request = wire.put_if(self._key.encode(), value, mod_revision=self._adopted)
            return wire.txn_answer(await client.call(wire.TXN, request)).succeeded
        except CallError as error:
            raise unreachable(client, error) from error
        finally:
            client.close()

    async def _read(self, client: EtcdClient) -> tuple[dict[str, str], int]:
        answer = wire.range_answer(await client.call(wire.RANGE, wire.range_request(self._key.encode())))
        if not answer.pairs:
            return {}, 0
        value = answer.pairs[0].value
        if value.startswith(ANY_SEALED):
            if self._encryption is None:
                raise MissingKey(self._key, sealing_key(value))
            await self._encryption.fetch([(self._key, value)])
            value = self._encryption.open(self._key, value)
        try:
            files = orjson.loads(value)
            return {name: files[name] for name in CREDENTIALS}, answer.pairs[0].mod_revision
        except (ValueError, KeyError, TypeError):
            reason = f"the credentials in {self._key} of etcd cannot be used; delete the key and restart all servers"
            raise Damaged(reason) from None

    def _write(self, files: dict[str, str]) -> None:
        for name, content in files.items():
            path = self._directory / name
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not path.exists() or path.read_text() != content:
                write_private(path, content.encode(), durable=True)
