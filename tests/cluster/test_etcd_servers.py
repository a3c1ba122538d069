"""Several servers on one etcd: each one's reads, watches, tokens and allocations agree with those of the others."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from tests.server.in_process import CONFIG_MAPS, SERVICES, InProcess, config_map
from tests.store.etcd.processes import EtcdMember

from pinnace.cluster.cluster import RunningCluster, running
from pinnace.cluster.settings import Settings
from pinnace.model.users import User
from pinnace.store.encryption_keys import MissingKey
from pinnace.store.etcd.settings import EtcdSettings


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdMember]:
    member = EtcdMember(tmp_path_factory.mktemp("etcd") / "data")
    member.start()
    yield member
    member.stop()


def settings_of(member: EtcdMember, data: Path, *, root: str) -> Settings:
    etcd = EtcdSettings(endpoints=(("127.0.0.1", member.port),), root=root)
    return Settings(data_dir=data, etcd=etcd, controllers=False, scheduler=False)


@pytest.fixture
async def clusters(
    member: EtcdMember, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[list[RunningCluster]]:
    async with AsyncExitStack() as stack:
        started = []
        for name in ("one", "two"):
            settings = settings_of(member, tmp_path / name, root=f"/{request.node.name}")
            started.append(await stack.enter_async_context(running(settings)))
        yield started


@pytest.fixture
def servers(clusters: list[RunningCluster]) -> list[InProcess]:
    return [InProcess(cluster.plane) for cluster in clusters]


async def test_servers_that_start_at_the_same_time_make_one_cluster(member: EtcdMember, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        settings = [settings_of(member, tmp_path / str(number), root="/at-once") for number in range(3)]
        started = await asyncio.gather(*(stack.enter_async_context(running(setting)) for setting in settings))
        assert len({cluster.access.token for cluster in started}) == 1
        services = [await InProcess(cluster.plane).get(f"{SERVICES}/kubernetes") for cluster in started]
        assert len({service.body for service in services}) == 1 and services[0].status == 200


async def test_a_read_sees_each_write_that_another_server_has_acknowledged(servers: list[InProcess]) -> None:
    for turn in range(40):
        writer, reader = servers[turn % 2], servers[1 - turn % 2]
        made = await writer.made(CONFIG_MAPS, config_map(f"c{turn}"))
        assert (await reader.get(f"{CONFIG_MAPS}/c{turn}")).json == made
        listed = await reader.get(CONFIG_MAPS)
        assert f"c{turn}" in listed.names
        assert int(listed.version) >= int(made["metadata"]["resourceVersion"])
        if turn % 4 == 3:
            assert (await writer.delete(f"{CONFIG_MAPS}/c{turn}")).status == 200
            assert (await reader.get(f"{CONFIG_MAPS}/c{turn}")).status == 404


async def test_a_write_is_not_refused_because_of_objects_that_another_server_has_changed(
    servers: list[InProcess],
) -> None:
    first, second = servers
    for turn in range(20):
        path = f"{CONFIG_MAPS}/c{turn}"
        made = await first.made(CONFIG_MAPS, config_map(f"c{turn}"))
        patched = await second.patch(path, {"data": {"turn": str(turn)}})
        assert patched.status == 200 and patched.json["metadata"]["uid"] == made["metadata"]["uid"]
        assert (await first.put(path, patched.json)).status == 200
        assert (await first.delete(path)).status == 200
        assert (await second.made(CONFIG_MAPS, config_map(f"c{turn}")))["metadata"]["uid"] != made["metadata"]["uid"]
        assert (await first.delete(path)).status == 200


async def test_increments_at_two_servers_lose_nothing(servers: list[InProcess]) -> None:
    await servers[0].made(CONFIG_MAPS, {**config_map("count"), "data": {"n": "0"}})
    lost = Counter[int]()

    async def increment(server: InProcess) -> None:
        for _ in range(10):
            while True:
                obj = (await server.get(f"{CONFIG_MAPS}/count")).json
                obj["data"]["n"] = str(int(obj["data"]["n"]) + 1)
                reply = await server.put(f"{CONFIG_MAPS}/count", obj)
                lost[reply.status] += 1
                if reply.status == 200:
                    break

    await asyncio.gather(*(increment(server) for server in servers for _ in range(3)))
    assert (await servers[0].get(f"{CONFIG_MAPS}/count")).json["data"]["n"] == "60"
    assert lost.keys() == {200, 409}


async def test_a_watch_goes_on_at_another_server_and_pages_continue_there(servers: list[InProcess]) -> None:
    serving, idle = servers
    first = await serving.made(CONFIG_MAPS, config_map("a0"))
    for turn in range(1, 8):
        await servers[turn % 2].made(CONFIG_MAPS, config_map(f"a{turn}"))
    since = first["metadata"]["resourceVersion"]
    seen = []
    for server in servers:
        watch = await server.watch(f"{CONFIG_MAPS}?watch=1&resourceVersion={since}")
        seen.append(await watch.take(7))
        watch.close()
    assert seen[0] == seen[1] and [event["object"]["metadata"]["name"] for event in seen[0]] == [
        f"a{turn}" for turn in range(1, 8)
    ]
    page = await serving.get(f"{CONFIG_MAPS}?limit=3")
    await serving.made(CONFIG_MAPS, config_map("a3x"))
    token = page.json["metadata"]["continue"]
    rest = await idle.get(f"{CONFIG_MAPS}?limit=500&continue={token}")
    assert rest.version == page.version
    names = page.names + rest.names
    assert len(set(names)) == len(names) and "a3x" not in names and {f"a{turn}" for turn in range(8)} <= set(names)


async def test_tokens_and_certificates_of_one_server_are_good_at_all(clusters: list[RunningCluster]) -> None:
    first, second = clusters
    assert (first.access.token, first.access.ca) == (second.access.token, second.access.ca)
    api = InProcess(first.plane)
    await api.made("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "robot"}})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    made = await api.made("/api/v1/namespaces/default/serviceaccounts/robot/token", request)
    review = {"spec": {"token": made["status"]["token"]}}
    result = await InProcess(second.plane).made("/apis/authentication.k8s.io/v1/tokenreviews", review)
    assert result["status"]["user"]["username"] == "system:serviceaccount:default:robot"


async def test_flow_schemas_made_at_one_server_hold_at_all(clusters: list[RunningCluster]) -> None:
    first, second = (InProcess(cluster.plane) for cluster in clusters)
    subject = {"kind": "User", "name": "ada", "apiGroup": "rbac.authorization.k8s.io"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    binding = {"metadata": {"name": "ada"}, "subjects": [subject], "roleRef": role}
    await first.made("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
    rule = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]}
    rules = [{"subjects": [{"kind": "User", "user": {"name": "ada"}}], "resourceRules": [rule]}]
    level = {"name": "workload-high"}
    spec = {"matchingPrecedence": 500, "priorityLevelConfiguration": level, "rules": rules}
    schemas = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas"
    made = await first.made(schemas, {"metadata": {"name": "ada"}, "spec": spec})
    assert (await second.get(f"{schemas}/ada")).json["metadata"]["uid"] == made["metadata"]["uid"]
    reply = await InProcess(clusters[1].plane, User("ada", ("system:authenticated",))).get(CONFIG_MAPS)
    assert reply.status == 200
    assert reply.header("x-kubernetes-pf-flowschema-uid") == [made["metadata"]["uid"]]


async def test_secrets_and_credentials_in_etcd_are_encrypted_and_all_servers_with_the_key_read_them(
    member: EtcdMember, tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"first:{b64encode(bytes(32)).decode()}\n")
    own, two, three = (settings_of(member, tmp_path / name, root="/sealed") for name in ("one", "two", "three"))
    secrets = "/api/v1/namespaces/default/secrets"
    async with (
        running(replace(own, encryption_key_file=keys)) as first,
        running(replace(two, encryption_key_file=keys)) as second,
    ):
        made = await InProcess(first.plane).made(secrets, {"metadata": {"name": "s"}, "stringData": {"p": "plain"}})
        assert (await InProcess(second.plane).get(f"{secrets}/s")).json == made
        assert first.access.token == second.access.token
        stored = member.control("get", "--prefix", "/", "--print-value-only")
        assert b64encode(b"plain").decode() not in stored and first.access.token not in stored
        with pytest.raises(MissingKey):
            async with running(three):
                pass


async def test_no_two_servers_give_away_the_same_node_port_or_address(servers: list[InProcess]) -> None:
    def service(name: str, **port: int) -> dict[str, object]:
        return {"metadata": {"name": name}, "spec": {"type": "NodePort", "ports": [{"port": 80, **port}]}}

    for turn in range(5):
        replies = await asyncio.gather(
            *(
                server.post(SERVICES, service(f"s{turn}-{at}-{number}", nodePort=30100 + turn))
                for at, server in enumerate(servers)
                for number in range(3)
            )
        )
        assert sorted(reply.status for reply in replies) == [201, 422, 422, 422, 422, 422]
    await asyncio.gather(
        *(server.made(SERVICES, service(f"r{at}-{n}")) for at, server in enumerate(servers) for n in range(10))
    )
    stored = (await servers[0].get(SERVICES)).json["items"]
    ports = [port["nodePort"] for obj in stored for port in obj["spec"]["ports"] if "nodePort" in port]
    addresses = [obj["spec"]["clusterIP"] for obj in stored]
    assert len(set(ports)) == len(ports) == 25 and len(set(addresses)) == len(addresses)
    freed = next(obj for obj in stored if obj["spec"]["ports"][0].get("nodePort") == 30100)
    await servers[1].delete(f"{SERVICES}/{freed['metadata']['name']}")
    assert (await servers[0].post(SERVICES, service("again", nodePort=30100))).status == 201


async def test_no_quota_is_exceeded_by_writes_at_two_servers(servers: list[InProcess]) -> None:
    await servers[0].made("/api/v1/namespaces", {"metadata": {"name": "small"}})
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"count/configmaps": "7"}}}
    await servers[0].made("/api/v1/namespaces/small/resourcequotas", quota)
    await servers[1].get("/api/v1/namespaces/small/resourcequotas/q")
    path = "/api/v1/namespaces/small/configmaps"
    replies = await asyncio.gather(
        *(server.post(path, config_map(f"c{at}-{n}")) for at, server in enumerate(servers) for n in range(10))
    )
    assert Counter(reply.status for reply in replies) == {201: 7, 403: 13}
    assert len((await servers[1].get(path)).names) == 7


async def test_control_loops_run_at_one_server_and_move_to_the_next(member: EtcdMember, tmp_path: Path) -> None:
    settings = [
        replace(settings_of(member, tmp_path / name, root="/loops"), controllers=True) for name in ("one", "two")
    ]
    deployments = "/apis/apps/v1/namespaces/default/deployments"
    deployment = {
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": "host"}]},
            },
        }
    }
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager"

    async def replica_sets(server: InProcess, count: int) -> None:
        async with asyncio.timeout(60):
            while len((await server.get("/apis/apps/v1/namespaces/default/replicasets")).names) != count:
                await asyncio.sleep(0.05)

    async with running(settings[1]) as second:
        two = InProcess(second.plane)
        async with running(settings[0]) as first:
            api = InProcess(first.plane)
            await api.made(deployments, {**deployment, "metadata": {"name": "a"}})
            await replica_sets(two, 1)
            held = (await two.get(leases)).json["spec"]["holderIdentity"]
            assert held == (await api.get(leases)).json["spec"]["holderIdentity"]
        await two.made(deployments, {**deployment, "metadata": {"name": "b"}})
        await replica_sets(two, 2)
