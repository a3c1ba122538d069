"""A cluster with an EncryptionConfiguration: what is on the disk, what reads and writes do, and what a reload does."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.server.in_process import CONFIG_MAPS, InProcess, Reply, config_map
from tests.store.encryption.kms_plugin import Plugin, running_plugin
from tests.store.etcd.processes import EtcdMember

from pinnace.cluster.cluster import running
from pinnace.cluster.in_process import in_process_client
from pinnace.cluster.settings import Settings
from pinnace.extensions.custom.migration import migrate_storage
from pinnace.model.objects import Object
from pinnace.schema.configuration.errors import ConfigurationError
from pinnace.store.etcd.settings import EtcdSettings
from pinnace.store.sqlite.snapshot import read_file

SECRETS = "/api/v1/namespaces/default/secrets"
SECRET: Object = {"metadata": {"name": "a"}, "stringData": {"password": "staple"}}
KEY = "/registry/core/secrets/default/a"


def key(letter: str) -> str:
    return b64encode(letter.encode() * 32).decode()


def rule(resources: str, *providers: str) -> str:
    return f"- {{resources: [{resources}], providers: [{', '.join(providers)}]}}\n"


def local(kind: str, *keys: str) -> str:
    return f"{{{kind}: {{keys: [{', '.join(f'{{name: {name}, secret: {key(name[0])}}}' for name in keys)}]}}}}"


def write(path: Path, *rules: str) -> Path:
    text = f"apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n{''.join(rules)}"
    path.touch(mode=0o600)
    path.write_text(text)
    return path


@asynccontextmanager
async def started(directory: Path, configuration: Path | None, *, reloads: bool = True) -> AsyncIterator[InProcess]:
    settings = Settings(
        data_dir=directory / "data",
        encryption_configuration=configuration,
        reloads_encryption=reloads and configuration is not None,
        controllers=False,
        scheduler=False,
    )
    async with running(settings) as cluster:
        yield InProcess(cluster.plane)


def stored(directory: Path) -> dict[str, bytes]:
    return {record.key: record.value for record in read_file(directory / "data" / "state.db").records}


async def metric(server: InProcess, name: str, *labels: str) -> float:
    text = (await server.get("/metrics")).body.decode()
    lines = [
        line for line in text.splitlines() if line.startswith(f"{name}{{") and all(part in line for part in labels)
    ]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


async def wait_for_reloads(server: InProcess, status: str, count: int) -> None:
    async with asyncio.timeout(60):
        while (
            await metric(server, "apiserver_encryption_config_controller_automatic_reloads_total", f'status="{status}"')
            < count
        ):
            await asyncio.sleep(0.02)


@pytest.fixture
async def plugin(tmp_path: Path) -> AsyncIterator[Plugin]:
    async with running_plugin(tmp_path) as plugin:
        yield plugin


async def test_each_resource_is_stored_as_its_rule_says(tmp_path: Path) -> None:
    configuration = write(
        tmp_path / "config",
        rule("secrets", local("aescbc", "k1"), "{identity: {}}"),
        rule("'*.apps'", local("secretbox", "k2"), "{identity: {}}"),
        rule("'*.*'", local("aesgcm", "k3"), "{identity: {}}"),
    )
    async with started(tmp_path, configuration) as server:
        made = await server.made(SECRETS, SECRET)
        await server.made(CONFIG_MAPS, config_map("a"))
        history = {"metadata": {"name": "a"}, "revision": 1, "data": {"a": "b"}}
        await server.made("/apis/apps/v1/namespaces/default/controllerrevisions", history)
        assert (await server.get(f"{SECRETS}/a")).json == made
    values = stored(tmp_path)
    assert values[KEY].startswith(b"k8s:enc:aescbc:v1:k1:")
    assert values["/registry/apps/controllerrevisions/default/a"].startswith(b"k8s:enc:secretbox:v1:k2:")
    assert values["/registry/core/configmaps/default/a"].startswith(b"k8s:enc:aesgcm:v1:k3:")
    assert values["/registry/core/namespaces/default"].startswith(b"k8s:enc:aesgcm:v1:k3:")
    async with started(tmp_path, configuration) as server:
        assert (await server.get(f"{SECRETS}/a")).json == made


async def test_a_saved_configuration_writes_with_its_first_key_and_reads_with_all(tmp_path: Path) -> None:
    configuration = write(tmp_path / "config", rule("secrets", local("aescbc", "k1"), "{identity: {}}"))
    async with started(tmp_path, configuration) as server:
        made = await server.made(SECRETS, SECRET)
        write(configuration, rule("secrets", local("secretbox", "new"), local("aescbc", "k1")))
        await wait_for_reloads(server, "success", 1)
        assert (await server.get(f"{SECRETS}/a")).json == made
        assert stored(tmp_path)[KEY].startswith(b"k8s:enc:aescbc:v1:k1:")
        # An update that changes nothing stores the object anew, as in Kubernetes: this is how objects are migrated.
        reply = await server.put(f"{SECRETS}/a", made)
        assert reply.status == 200 and reply.json["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"]
        assert stored(tmp_path)[KEY].startswith(b"k8s:enc:secretbox:v1:new:")
        again = await server.put(f"{SECRETS}/a", reply.json)
        assert again.json == reply.json


async def test_a_migration_moves_all_objects_to_the_new_key(tmp_path: Path) -> None:
    configuration = write(tmp_path / "config", rule("secrets", local("aescbc", "k1"), "{identity: {}}"))
    async with started(tmp_path, configuration) as server:
        for number in range(3):
            await server.made(SECRETS, {**SECRET, "metadata": {"name": f"s{number}"}})
        write(configuration, rule("secrets", local("aesgcm", "new"), local("aescbc", "k1")))
        await wait_for_reloads(server, "success", 1)
        done = await migrate_storage(in_process_client(server.plane.local()), "secrets")
        assert done.objects >= 3
        write(configuration, rule("secrets", local("aesgcm", "new")))
        await wait_for_reloads(server, "success", 2)
        assert {f"s{number}" for number in range(3)} <= set((await server.get(SECRETS)).names)
    sealed = [value for key, value in stored(tmp_path).items() if key.startswith("/registry/core/secrets/")]
    assert len(sealed) >= 3 and all(value.startswith(b"k8s:enc:aesgcm:v1:new:") for value in sealed)
    async with started(tmp_path, configuration) as server:
        assert (await server.get(f"{SECRETS}/s1")).status == 200


async def test_a_bad_configuration_changes_nothing_and_is_counted(tmp_path: Path) -> None:
    configuration = write(tmp_path / "config", rule("secrets", local("aescbc", "k1")))
    async with started(tmp_path, configuration) as server:
        configuration.write_text("nonsense")
        await wait_for_reloads(server, "failure", 1)
        await server.made(SECRETS, SECRET)
        assert stored(tmp_path)[KEY].startswith(b"k8s:enc:aescbc:v1:k1:")
        assert await metric(server, "apiserver_encryption_config_controller_last_config_info") == 1


async def test_without_identity_plain_values_cannot_be_read(tmp_path: Path) -> None:
    async with started(tmp_path, None) as server:
        await server.made(SECRETS, SECRET)
    configuration = write(tmp_path / "config", rule("secrets", local("aescbc", "k1")))
    async with started(tmp_path, configuration) as server:
        assert "no matching prefix found" in (await server.get(f"{SECRETS}/a")).json["message"]
        assert (await server.get(CONFIG_MAPS)).status == 200


async def test_a_value_whose_key_is_gone_fails_alone_and_names_the_key(tmp_path: Path) -> None:
    old = write(tmp_path / "old", rule("secrets", local("aescbc", "k1")))
    async with started(tmp_path, old) as server:
        made = await server.made(SECRETS, SECRET)
    new = write(tmp_path / "new", rule("secrets", local("aescbc", "new")))
    async with started(tmp_path, new) as server:
        error = "no matching key was found for the provided AES transformer (provider aescbc, key k1)"
        reply = await server.get(f"{SECRETS}/a")
        assert reply.status == 500 and reply.json["reason"] == "InternalError"
        assert reply.json["message"] == (
            "Internal error occurred: StorageError: corrupt object, Code: 7, Key: /secrets/default/a, ResourceVersion: "
            f"0, AdditionalErrorMsg: data from the storage is not transformable revision=0: {error}"
        )
        listed = await server.get(SECRETS)
        assert (listed.status, listed.json["reason"]) == (500, "StorageReadError")
        assert listed.json["details"]["causes"][0]["field"] == KEY
        assert (await server.get("/api/v1/namespaces/kube-system/secrets")).status == 200
        assert (await server.delete(f"{SECRETS}/a")).status == 500
        assert (await server.post(SECRETS, SECRET)).json["reason"] == "AlreadyExists"
        await server.made(SECRETS, {**SECRET, "metadata": {"name": "b"}})
        write(new, rule("secrets", local("aescbc", "new", "k1")))
        await wait_for_reloads(server, "success", 1)
        assert (await server.get(f"{SECRETS}/a")).json == made
        assert (await server.get(SECRETS)).names == ["a", "b"]


async def test_a_plug_in_is_asked_once_for_a_seed_and_a_new_key_id_gets_a_new_seed(
    tmp_path: Path, plugin: Plugin
) -> None:
    configuration = write(tmp_path / "config", rule("secrets", plugin.configuration(), "{identity: {}}"))
    async with started(tmp_path, configuration) as server:
        for number in range(5):
            await server.made(SECRETS, {**SECRET, "metadata": {"name": f"s{number}"}})
        assert plugin.calls == {"Status": 1, "Encrypt": 1}
        assert await metric(server, "apiserver_envelope_encryption_key_id_hash_total", "to_storage", "vault") == 5
        assert (await server.get("/healthz/kms-providers")).body == b"ok"
    plugin.key_id = "key-2"
    async with started(tmp_path, configuration) as server:
        listed = await server.get(SECRETS)
        assert len(listed.names) == 5
        assert plugin.calls == {"Status": 2, "Encrypt": 2, "Decrypt": 1}
        for item in listed.json["items"]:
            assert (await server.put(f"{SECRETS}/{item['metadata']['name']}", item)).status == 200
    plugin.forgotten.add("key-1")
    async with started(tmp_path, configuration) as server:
        assert len((await server.get(SECRETS)).names) == 5


async def test_a_key_that_the_plug_in_has_forgotten_is_named_and_other_objects_are_read(
    tmp_path: Path, plugin: Plugin
) -> None:
    configuration = write(tmp_path / "config", rule("secrets", plugin.configuration()))
    async with started(tmp_path, configuration) as server:
        await server.made(SECRETS, SECRET)
    plugin.key_id = "key-2"
    plugin.forgotten.add("key-1")
    async with started(tmp_path, configuration) as server:
        message = (await server.get(f"{SECRETS}/a")).json["message"]
        assert (
            "failed to decrypt DEK, error: rpc error: code = FailedPrecondition desc = key key-1 is unknown" in message
        )
        assert message.endswith("(KMS provider vault)") and 'key ID hash "sha256:' in message
        await server.made(SECRETS, {**SECRET, "metadata": {"name": "b"}})
        assert (await server.get(f"{SECRETS}/b")).status == 200
        assert (await server.get(CONFIG_MAPS)).status == 200


async def test_without_its_plug_in_a_server_starts_and_refuses_reads_and_writes_of_secrets(
    tmp_path: Path, plugin: Plugin
) -> None:
    configuration = write(tmp_path / "config", rule("secrets", plugin.configuration(timeout="100ms")))
    async with started(tmp_path, configuration) as server:
        await server.made(SECRETS, SECRET)
    plugin.answers.clear()
    async with started(tmp_path, configuration) as server:
        assert "got unexpected nil transformer" in (await server.get(f"{SECRETS}/a")).json["message"]
        reply = await server.post(SECRETS, {**SECRET, "metadata": {"name": "b"}})
        assert reply.status == 500
        assert reply.json["message"] == "Internal error occurred: got unexpected nil transformer (KMS provider vault)"
        assert (await server.post(CONFIG_MAPS, config_map("a"))).status == 201
        health = await server.get("/healthz/kms-providers")
        assert health.status == 500 and b"code = DeadlineExceeded desc = context deadline exceeded" in health.body
        assert (await server.get("/readyz")).status == 500


async def test_a_reload_with_a_plug_in_that_does_not_answer_is_refused(
    tmp_path: Path, plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pinnace.store.encryption.files._LEAST_HEALTH_SECONDS", 0.2)
    configuration = write(tmp_path / "config", rule("secrets", local("aescbc", "k1")))
    async with started(tmp_path, configuration) as server:
        plugin.answers.clear()
        write(configuration, rule("secrets", plugin.configuration(timeout="100ms")))
        await wait_for_reloads(server, "failure", 1)
        await server.made(SECRETS, SECRET)
    assert stored(tmp_path)[KEY].startswith(b"k8s:enc:aescbc:v1:k1:")


async def test_automatic_reload_needs_a_configuration() -> None:
    error = "--encryption-provider-config-automatic-reload must be set with --encryption-provider-config"
    with pytest.raises(ConfigurationError, match=error):
        async with running(Settings(reloads_encryption=True)):
            pass


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdMember]:
    member = EtcdMember(tmp_path_factory.mktemp("etcd") / "data")
    member.start()
    yield member
    member.stop()


async def test_servers_on_one_etcd_read_what_others_encrypt_with_seeds_of_their_own(
    tmp_path: Path, plugin: Plugin, member: EtcdMember
) -> None:
    etcd = EtcdSettings(endpoints=(("127.0.0.1", member.port),), root="/seeds")
    settings = Settings(
        etcd=etcd,
        encryption_configuration=write(tmp_path / "config", rule("secrets", plugin.configuration())),
        controllers=False,
        scheduler=False,
    )
    async with (
        running(replace(settings, data_dir=tmp_path / "one")) as first,
        running(replace(settings, data_dir=tmp_path / "two")) as second,
    ):
        servers = [InProcess(first.plane), InProcess(second.plane)]
        replies: list[Reply] = []
        for number in range(6):
            made = await servers[number % 2].made(SECRETS, {**SECRET, "metadata": {"name": f"s{number}"}})
            replies.append(await servers[1 - number % 2].get(f"{SECRETS}/s{number}"))
            assert replies[-1].json == made
        assert plugin.calls["Encrypt"] == 2 and plugin.calls["Decrypt"] == 2
        assert first.access.token == second.access.token
        assert first.access.token not in member.control("get", "--prefix", "/", "--print-value-only")
