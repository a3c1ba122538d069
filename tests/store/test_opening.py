"""A cluster with an encryption key keeps its secrets sealed on the disk, and says what is wrong with its keys."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

import orjson
import pytest

from pinnace.cluster.cluster import running
from pinnace.cluster.settings import Settings
from pinnace.store.encryption_keys import KeyFileError, MissingKey
from pinnace.store.store import Damaged

SECRETS = "/api/v1/namespaces/default/secrets"
SECRET = {"metadata": {"name": "a"}, "stringData": {"password": "staple"}}
ON_DISK = b64encode(b"staple").rstrip(b"=")


def keys(path: Path, **named: bytes) -> Path:
    path.write_text("".join(f"{name}:{b64encode(key * 32).decode()}\n" for name, key in named.items()))
    return path


async def start_and_read(data: Path, key_file: Path | None) -> tuple[int, bytes]:
    async with running(Settings(data_dir=data, encryption_key_file=key_file, controllers=False)) as cluster:
        answer = await cluster.plane.local().request("GET", f"{SECRETS}/a")
        body = answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)
        if answer.status == 404:
            json = {"content-type": "application/json"}
            made = await cluster.plane.local().request("POST", SECRETS, orjson.dumps(SECRET), json)
            assert made.status == 201
        return answer.status, body


def is_on_disk(data: Path) -> bool:
    return any(ON_DISK in file.read_bytes() for file in data.glob("state.db*"))


async def test_secrets_are_sealed_rotated_and_never_lost(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert (await start_and_read(data, None))[0] == 404
    assert is_on_disk(data)
    first = keys(tmp_path / "first", k1=b"1")
    status, body = await start_and_read(data, first)
    assert status == 200 and ON_DISK in body and not is_on_disk(data)
    with pytest.raises(MissingKey, match="'k1'"):
        await start_and_read(data, None)
    with pytest.raises(MissingKey, match="'k1'"):
        await start_and_read(data, keys(tmp_path / "second", k2=b"2"))
    with pytest.raises(Damaged, match="another key under that name"):
        await start_and_read(data, keys(tmp_path / "wrong", k1=b"2"))
    assert (await start_and_read(data, keys(tmp_path / "both", k2=b"2", k1=b"1")))[0] == 200
    assert (await start_and_read(data, tmp_path / "second"))[0] == 200
    assert not is_on_disk(data)


async def test_without_its_key_file_a_cluster_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="cannot be read"):
        await start_and_read(tmp_path / "data", tmp_path / "missing")
