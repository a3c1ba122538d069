"""APIServices lead to other servers, which may be slow, wrong or gone."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.extensions.aggregated_server import GROUP, HASH, OBJECT_META, ROOT, SCHEMA, VERSION, Kitchen, serving, tls_of
from tests.extensions.definitions import DEFINITIONS, condition, definition, reached, version
from tests.server.in_process import InProcess, Object

from pinnace.auth.certificates.authority import CertificateFiles, ensure_certificates, issue, new_ca
from pinnace.auth.users import User
from pinnace.cluster.aggregation import StoredServices
from pinnace.cluster.background_jobs import add_extension_parts
from pinnace.cluster.bootstrap.creation import bootstrap
from pinnace.cluster.control_plane import ControlPlane, build
from pinnace.cluster.in_process import in_process_client
from pinnace.cluster.settings import Settings
from pinnace.extensions.aggregation.availability import Availability, CheckResult, error_of_service
from pinnace.model.objects import Object as Json
from pinnace.server.http.messages import Response
from pinnace.server.local import LocalApi
from pinnace.store.memory import MemoryStore
from pinnace.testing.clock import ManualClock

API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
NAME = f"{VERSION}.{GROUP}"
SERVICES = "/api/v1/namespaces/default/services"
RECIPES = f"{ROOT}/namespaces/default/recipes"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class Aggregating(InProcess):
    """A control plane, an aggregated server, and what becomes of its APIService."""

    def __init__(
        self, plane: ControlPlane, kitchen: Kitchen, port: int, ca: bytes, stop_kitchen: Callable[[], Awaitable[None]]
    ) -> None:
        super().__init__(plane)
        self.stop_kitchen = stop_kitchen
        self.kitchen = kitchen
        self.port = port
        self.ca = ca

    async def register(self, **spec: Any) -> Object:
        """The APIService, once its server was asked."""
        await self.made(SERVICES, external_service())
        await self.made(API_SERVICES, api_service(self.port, self.ca, **spec))
        return await self.available("True")

    async def available(self, status: str, is_so: Callable[[Object], bool] = lambda found: True) -> Object:
        """The Available condition once it is so."""

        async def seen() -> Object | None:
            reply = await self.get(f"{API_SERVICES}/{NAME}")
            if reply.status == 404:
                return None
            found = condition(reply.json.get("status") or {}, "Available", status)
            return found if found is not None and is_so(found) else None

        found: Object = await reached(seen)
        return found

    async def groups(self) -> dict[str, Any]:
        return {group["name"]: group for group in (await self.get("/apis")).json["groups"]}

    async def discovered(self) -> Object:
        items = (await self.get("/apis", accept=AGGREGATED)).json["items"]
        group: Object = next(item for item in items if item["metadata"]["name"] == GROUP)
        return group


def external_service() -> Object:
    spec = {"type": "ExternalName", "externalName": "localhost"}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "kitchen"}, "spec": spec}


def api_service(port: int, ca: bytes, **spec: Any) -> Object:
    said = {
        "group": GROUP,
        "version": VERSION,
        "groupPriorityMinimum": 2000,
        "versionPriority": 10,
        "service": {"namespace": "default", "name": "kitchen", "port": port},
        "caBundle": base64.b64encode(ca).decode(),
    }
    metadata = {"name": NAME}
    wanted = {name: value for name, value in {**said, **spec}.items() if value is not None}
    return {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": metadata, "spec": wanted}


def recipe(name: str = "soup", minutes: int = 20) -> Object:
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "Recipe",
        "metadata": {"name": name},
        "spec": {"minutes": minutes},
    }


@dataclass(frozen=True)
class Pki:
    files: CertificateFiles
    ca: bytes
    certificate: Path
    key: Path


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    directory = tmp_path_factory.mktemp("pki")
    ca = new_ca(name="kitchen-ca")
    pair = issue(ca, common_name="kitchen", server_names=("kitchen.default.svc",))
    (directory / "kitchen.crt").write_bytes(pair.certificate_pem)
    (directory / "kitchen.key").write_bytes(pair.key_pem)
    files = ensure_certificates(directory / "cluster")
    return Pki(files, ca.certificate_pem, directory / "kitchen.crt", directory / "kitchen.key")


@pytest.fixture
async def cluster(pki: Pki) -> AsyncIterator[Aggregating]:
    async with AsyncExitStack() as stack:
        store = MemoryStore()
        plane = await build(Settings(), store, files=pki.files)
        await bootstrap(plane, address="127.0.0.1", port=6443)
        kitchen = Kitchen()
        tls = tls_of(pki.certificate, pki.key, pki.files.front_proxy_ca.certificate)
        server = await stack.enter_async_context(AsyncExitStack())
        port = await server.enter_async_context(serving(kitchen, tls))
        add_extension_parts(plane)
        async with plane.supervisor.running():
            yield Aggregating(plane, kitchen, port, pki.ca, server.aclose)
        await plane.close()
        await store.close()


async def test_an_api_service_is_available_once_its_server_has_answered(cluster: Aggregating) -> None:
    found = await cluster.register()
    assert (found["reason"], found["message"]) == ("Passed", "all checks passed")


async def test_requests_reach_the_server_and_its_answers_come_back(cluster: Aggregating) -> None:
    await cluster.register()
    made = await cluster.post(RECIPES, recipe())
    assert (made.status, made.json["metadata"]["uid"]) == (201, "uid-1")
    assert (await cluster.get(f"{RECIPES}/soup")).json["spec"] == {"minutes": 20}
    assert (await cluster.patch(f"{RECIPES}/soup", {"spec": {"minutes": 5}})).json["spec"] == {"minutes": 5}
    missing = await cluster.get(f"{RECIPES}/stew")
    assert (missing.status, missing.message) == (404, f'recipes.{GROUP} "stew" not found')
    assert (await cluster.delete(f"{RECIPES}/soup")).status == 200


async def test_the_server_is_told_who_is_calling_by_a_proxy_that_it_knows(cluster: Aggregating) -> None:
    await cluster.register()
    user = User("ada", ("cooks", "system:masters"), "7", {"example.com/shift": ("late",)})
    api = LocalApi(cluster.plane.api, user)
    forged = {
        "X-Remote-User": "root",
        "X-Remote-Group": "kings",
        "X-Remote-Extra-Crown": "gold",
        "Authorization": "Bearer secret",
        "Connection": "X-Hop",
        "X-Hop": "by hop",
        "X-Passed": "on",
    }
    answer = await api.request("GET", f"{RECIPES}/soup/caller?a=%2F&b", headers=forged)
    seen = orjson.loads(body_of(answer))
    assert seen["proxy"] == "front-proxy-client"
    assert seen["target"] == f"{RECIPES}/soup/caller?a=%2F&b"
    headers = seen["headers"]
    assert headers["x-remote-user"] == ["ada"]
    assert headers["x-remote-uid"] == ["7"]
    assert headers["x-remote-group"] == ["cooks", "system:masters", "system:authenticated"]
    assert headers["x-remote-extra-example.com%2fshift"] == ["late"]
    assert headers["x-passed"] == ["on"]
    assert not {"authorization", "x-remote-extra-crown", "x-hop"} & set(headers)


async def test_whoever_may_not_is_refused_before_the_server_is_asked(cluster: Aggregating) -> None:
    await cluster.register()
    asked = list(cluster.kitchen.asked)
    answer = await LocalApi(cluster.plane.api, User("mallory")).request("GET", f"{RECIPES}?watch=1")
    assert answer.status == 403
    assert b'cannot watch resource \\"recipes\\"' in body_of(answer)
    assert cluster.kitchen.asked == asked


async def test_events_of_a_watch_come_one_by_one_and_it_ends_when_the_client_leaves(cluster: Aggregating) -> None:
    await cluster.register()
    watch = await cluster.watch(f"{RECIPES}?watch=1")
    await reached(lambda: _some(cluster.kitchen.watchers))
    for minutes in (1, 2):
        await cluster.post(RECIPES, recipe(minutes=minutes))
        assert (await watch.next())["object"]["spec"] == {"minutes": minutes}
    watch.close()
    await reached(lambda: _some(not cluster.kitchen.watchers))


async def test_a_watch_ends_when_the_server_ends_it(cluster: Aggregating) -> None:
    await cluster.register()
    watch = await cluster.watch(f"{RECIPES}?watch=1")
    await reached(lambda: _some(cluster.kitchen.watchers))
    cluster.kitchen.watchers[0].put_nowait({})
    assert await watch.rest() == []


async def test_a_redirect_is_not_passed_back(cluster: Aggregating) -> None:
    await cluster.register()
    assert (await cluster.get(f"{ROOT}/elsewhere")).status == 502


async def test_discovery_lists_the_group_by_its_priority(cluster: Aggregating) -> None:
    before = list(await cluster.groups())
    await cluster.register(groupPriorityMinimum=17350)
    groups = await cluster.groups()
    names = list(groups)
    assert [name for name in names if name != GROUP] == before
    assert names.index("batch") < names.index(GROUP) < names.index("certificates.k8s.io")
    assert groups[GROUP]["preferredVersion"] == {"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION}
    assert (await cluster.get(f"/apis/{GROUP}")).json["versions"] == groups[GROUP]["versions"]
    assert (await cluster.get(ROOT)).json["resources"][0]["name"] == "recipes"


async def test_aggregated_discovery_has_the_resources_of_the_server(cluster: Aggregating) -> None:
    await cluster.register()
    kind = {"group": GROUP, "version": VERSION, "kind": "Recipe"}
    assert (await cluster.discovered())["versions"] == [
        {
            "version": VERSION,
            "resources": [
                {
                    "resource": "recipes",
                    "responseKind": kind,
                    "scope": "Namespaced",
                    "singularResource": "recipe",
                    "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
                    "shortNames": ["rcp"],
                    "subresources": [
                        {"subresource": "caller", "responseKind": kind, "verbs": ["get"]},
                        {"subresource": "talk", "responseKind": kind, "verbs": ["create", "get"]},
                    ],
                }
            ],
            "freshness": "Current",
        }
    ]


async def test_openapi_is_passed_through_and_asked_for_once(cluster: Aggregating) -> None:
    await cluster.register()
    path = f"apis/{GROUP}/{VERSION}"

    async def listed() -> Any:
        return (await cluster.get("/openapi/v3")).json["paths"].get(path)

    url = (await reached(listed))["serverRelativeURL"]
    assert url == f"/openapi/v3/{path}?hash={HASH}"
    first = await cluster.get(url)
    assert "com.example.kitchen.v1.Recipe" in first.json["components"]["schemas"]
    again = await cluster.get(url, **{"if-none-match": first.header("etag")[0]})
    assert again.status == 304
    assert cluster.kitchen.asked.count(f"/openapi/v3/{path}") == 1
    assert "apis/apps/v1" in (await cluster.get("/openapi/v3")).json["paths"]


async def test_openapi_v2_has_what_the_server_serves_and_nothing_else_of_it(cluster: Aggregating) -> None:
    alone = (await cluster.get("/openapi/v2")).json
    await cluster.register()
    first = await cluster.get("/openapi/v2")
    merged, added = first.json, set(first.json["definitions"]) - set(alone["definitions"])
    assert added == {SCHEMA, f"{OBJECT_META}_v2"}
    metadata = merged["definitions"][SCHEMA]["properties"]["metadata"]
    assert metadata == {"$ref": f"#/definitions/{OBJECT_META}_v2"}
    assert merged["definitions"][OBJECT_META] == alone["definitions"][OBJECT_META]
    assert merged["paths"]["/api/v1/pods"] == alone["paths"]["/api/v1/pods"]
    assert set(merged["paths"]) - set(alone["paths"]) == {f"{ROOT}/namespaces/{{namespace}}/recipes/{{name}}"}
    held = {"if-none-match": first.header("etag")[0]}
    assert (await cluster.get("/openapi/v2", **held)).status == 304
    assert cluster.kitchen.asked.count("/openapi/v2") == 1
    packed = await cluster.get("/openapi/v2", accept="application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
    assert SCHEMA.encode() in packed.body


async def test_openapi_v2_follows_the_server_and_does_without_it_when_it_dies(cluster: Aggregating) -> None:
    await cluster.register()
    first = await cluster.get("/openapi/v2")
    cluster.kitchen.definitions["definitions"][SCHEMA]["description"] = "New."
    await touch(cluster)
    await reached(lambda: _described(cluster, "New."))
    assert (await cluster.get("/openapi/v2")).header("etag") != first.header("etag")
    await cluster.stop_kitchen()
    await touch(cluster)
    await cluster.available("False")
    left = await cluster.get("/openapi/v2")
    assert left.status == 200 and SCHEMA not in left.json["definitions"]


async def _described(cluster: Aggregating, description: str) -> Any:
    found = (await cluster.get("/openapi/v2")).json["definitions"].get(SCHEMA) or {}
    return found if found.get("description") == description else None


async def test_odd_openapi_of_a_server_is_left_out(cluster: Aggregating) -> None:
    await cluster.register()
    unlisted = {"paths": {f"{ROOT}/x": {"$ref": "#/definitions/a"}}, "definitions": [1]}
    oddities: list[Any] = [[], {"paths": []}, unlisted, None]
    for odd in oddities:
        cluster.kitchen.definitions = odd
        await touch(cluster)
        count = cluster.kitchen.asked.count("/openapi/v2")

        async def asked_anew(count: int = count) -> Any:
            assert "/api/v1/pods" in (await cluster.get("/openapi/v2")).json["paths"]
            return True if cluster.kitchen.asked.count("/openapi/v2") > count else None

        await reached(asked_anew)


async def test_requests_that_were_passed_on_are_counted_by_resource(cluster: Aggregating) -> None:
    await cluster.register()
    for path in (RECIPES, f"{RECIPES}/stew", f"{ROOT}/namespaces/default/nonsense", ROOT):
        await cluster.get(path)
    told = (await cluster.get("/metrics")).body.decode()
    place = f'component="apiserver",dry_run="",group="{GROUP}",resource="recipes",scope="%s",subresource=""'
    assert f'apiserver_request_total{{code="200",{place % "namespace"},verb="LIST",version="v1"}} 1' in told
    assert f'apiserver_request_total{{code="404",{place % "resource"},verb="GET",version="v1"}} 1' in told
    assert "nonsense" not in told
    assert f'aggregator_unavailable_apiservice{{name="{NAME}"}} 0' in told
    await cluster.stop_kitchen()
    await touch(cluster)
    await cluster.available("False")
    told = (await cluster.get("/metrics")).body.decode()
    assert f'aggregator_unavailable_apiservice{{name="{NAME}"}} 1' in told
    assert f'aggregator_unavailable_apiservice_total{{name="{NAME}",reason="FailedDiscoveryCheck"}} 1' in told


async def test_a_dead_server_is_unavailable_for_its_own_group_alone(cluster: Aggregating) -> None:
    await cluster.register()
    cluster.kitchen.answer_with = 500
    await touch(cluster)
    found = await cluster.available("False")
    url = f"https://localhost:{cluster.port}{ROOT}"
    assert found["reason"] == "FailedDiscoveryCheck"
    assert found["message"] == f"failing or missing response from {url}: bad status from {url}: 500"
    refused = await cluster.get(RECIPES)
    assert (refused.status, refused.json["reason"]) == (503, "ServiceUnavailable")
    assert refused.message == f"service unavailable: FailedDiscoveryCheck: {found['message']}"
    stale = (await cluster.discovered())["versions"][0]
    assert (stale["freshness"], stale["resources"][0]["resource"]) == ("Stale", "recipes")
    assert GROUP in await cluster.groups()
    assert (await cluster.get("/api/v1/namespaces")).status == 200


async def touch(cluster: Aggregating) -> None:
    """Have the server looked at again."""
    service = (await cluster.get(SERVICES + "/kitchen")).json
    touches = int((service["metadata"].get("labels") or {}).get("touches", 0)) + 1
    service["metadata"]["labels"] = {"touches": str(touches)}
    assert (await cluster.put(SERVICES + "/kitchen", service)).status == 200


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        pytest.param({"caBundle": None}, "tls: failed to verify certificate: ", id="a certificate of nobody we know"),
        pytest.param(
            {"service": {"namespace": "default", "name": "kitchen", "port": 1}},
            "connect: connection refused",
            id="no server",
        ),
    ],
)
async def test_why_a_server_cannot_be_asked_is_reported(cluster: Aggregating, spec: Object, told: str) -> None:
    await cluster.made(SERVICES, external_service())
    await cluster.made(API_SERVICES, api_service(cluster.port, cluster.ca, **spec))
    found = await cluster.available("False")
    assert found["reason"] == "FailedDiscoveryCheck"
    assert told in found["message"]


async def test_a_server_is_believed_blindly_only_if_its_api_service_says_so(cluster: Aggregating) -> None:
    await cluster.register(caBundle=None, insecureSkipTLSVerify=True)
    assert (await cluster.get(RECIPES)).status == 200


async def test_a_service_that_is_made_later_is_noticed(cluster: Aggregating) -> None:
    await cluster.made(API_SERVICES, api_service(cluster.port, cluster.ca))
    found = await cluster.available("False")
    assert (found["reason"], found["message"]) == ("ServiceNotFound", 'service/kitchen in "default" is not present')
    await cluster.made(SERVICES, external_service())
    await cluster.available("True")


async def test_addresses_of_the_cluster_network_are_never_called(cluster: Aggregating) -> None:
    spec = {"ports": [{"port": cluster.port}]}
    await cluster.made(SERVICES, {**external_service(), "spec": spec})
    subsets = [{"addresses": [{"ip": "10.1.2.3"}], "ports": [{"port": cluster.port}]}]
    endpoints = {"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "kitchen"}, "subsets": subsets}
    await cluster.made("/api/v1/namespaces/default/endpoints", endpoints)
    await cluster.made(API_SERVICES, api_service(cluster.port, cluster.ca))
    found = await cluster.available("False")
    assert found["message"] == 'service "kitchen" has no endpoint that can be reached from here'


async def test_what_is_local_stays_so_until_an_api_service_leads_elsewhere(cluster: Aggregating) -> None:
    local = api_service(cluster.port, cluster.ca, service=None, caBundle=None)
    await cluster.made(API_SERVICES, local)
    found = await cluster.available("True")
    assert (found["reason"], (await cluster.get(RECIPES)).status) == ("Local", 404)
    assert cluster.kitchen.asked == []
    await cluster.made(SERVICES, external_service())
    present = (await cluster.get(f"{API_SERVICES}/{NAME}")).json
    present["spec"] = api_service(cluster.port, cluster.ca)["spec"]
    await cluster.put(f"{API_SERVICES}/{NAME}", present)
    await cluster.available("True", lambda found: found["reason"] == "Passed")
    assert (await cluster.get(RECIPES)).status == 200


async def test_a_version_beside_a_custom_kind_is_sorted_by_priority(cluster: Aggregating) -> None:
    await cluster.made(
        DEFINITIONS, definition("recipes", "Recipe", group=GROUP, versions=[version("v2", storage=True)])
    )
    await cluster.register(versionPriority=200)
    listed = [one["version"] for one in (await cluster.get(f"/apis/{GROUP}")).json["versions"]]
    assert listed == ["v1", "v2"]
    assert (await cluster.get(f"/apis/{GROUP}/v2/recipes")).json["kind"] == "RecipeList"
    assert cluster.kitchen.asked.count(f"/apis/{GROUP}/v2/recipes") == 0


async def test_a_custom_kind_is_answered_elsewhere_while_an_api_service_says_so(cluster: Aggregating) -> None:
    await cluster.register()
    await cluster.made(
        DEFINITIONS, definition("recipes", "Recipe", group=GROUP, versions=[version("v1", storage=True)])
    )
    await cluster.made(RECIPES, recipe("remote"))
    await cluster.delete(f"{API_SERVICES}/{NAME}")
    await cluster.available("True", lambda found: found["reason"] == "Local")
    await cluster.made(RECIPES, recipe("local"))
    assert (await cluster.get(RECIPES)).names == ["local"]
    await cluster.delete(f"{API_SERVICES}/{NAME}")
    await cluster.made(API_SERVICES, api_service(cluster.port, cluster.ca))
    await cluster.available("True", lambda found: found["reason"] == "Passed")
    assert (await cluster.get(RECIPES)).names == ["remote"]


async def test_custom_kinds_have_an_api_service_as_long_as_they_are_served(cluster: Aggregating) -> None:
    recipes = definition("recipes", "Recipe", group=GROUP, versions=[version("v1", storage=True)])
    await cluster.made(DEFINITIONS, recipes)
    await cluster.available("True")
    made = (await cluster.get(f"{API_SERVICES}/{NAME}")).json
    assert made["metadata"]["labels"] == {"kube-aggregator.kubernetes.io/automanaged": "true"}
    priorities = {"groupPriorityMinimum": 1000, "versionPriority": 100}
    assert made["spec"] == {"group": GROUP, "version": VERSION, **priorities}
    plain = (await cluster.get(f"{DEFINITIONS}/recipes.{GROUP}")).json
    plain["spec"]["versions"].append(version("v2"))
    plain["spec"]["versions"][0]["served"] = False
    await cluster.put(f"{DEFINITIONS}/recipes.{GROUP}", plain)

    async def moved() -> Any:
        statuses = [(await cluster.get(f"{API_SERVICES}/{each}.{GROUP}")).status for each in ("v1", "v2")]
        return statuses if statuses == [404, 200] else None

    await reached(moved)


async def test_built_in_api_services_that_are_labelled_automanaged_stay(cluster: Aggregating) -> None:
    label = {"metadata": {"labels": {"kube-aggregator.kubernetes.io/automanaged": "true"}}}
    for name in ("v1.", "v1.apps"):
        assert (await cluster.patch(f"{API_SERVICES}/{name}", label)).status == 200
    client = in_process_client(cluster.plane.local())
    task = asyncio.create_task(cluster.plane.aggregation.run_registration(client))
    recipes = definition("recipes", "Recipe", group=GROUP, versions=[version("v1", storage=True)])
    await cluster.made(DEFINITIONS, recipes)  # Its APIService tells that the registration has looked at all others.

    async def registered() -> Any:
        return (await cluster.get(f"{API_SERVICES}/{VERSION}.{GROUP}")).status == 200

    await reached(registered)
    assert not task.done()
    task.cancel()
    for name in ("v1.", "v1.apps"):
        assert (await cluster.get(f"{API_SERVICES}/{name}")).status == 200


async def test_a_server_that_dies_between_checks_is_noticed_by_the_first_who_needs_it(cluster: Aggregating) -> None:
    await cluster.register()
    await cluster.stop_kitchen()
    refused = await cluster.get(RECIPES)
    assert refused.status == 503
    assert "connection refused" in refused.message
    assert "connection refused" in (await cluster.available("False"))["message"]


async def test_servers_are_asked_every_30_seconds_and_sooner_while_they_fail(cluster: Aggregating) -> None:
    clock = ManualClock()
    plane = cluster.plane
    services = StoredServices(plane.fanout)
    client = in_process_client(plane.local())
    checking = Availability(client, plane.aggregation.api_services, services, clock=clock)
    await cluster.register()
    cluster.kitchen.asked.clear()
    task = asyncio.create_task(checking.run())
    pauses: list[float] = []
    for answer in (200, 500, 500, 500, 500, 500, 500, 200):
        cluster.kitchen.answer_with = answer if answer != 200 else 0
        if pauses:
            await clock.advance(pauses[-1])
        pauses.append(await reached(lambda: _some(clock.next_alarm)))
    task.cancel()
    assert pauses == [30, 1, 2, 4, 8, 16, 30, 30]


async def test_with_its_api_service_a_group_leaves(cluster: Aggregating) -> None:
    await cluster.register()
    await cluster.delete(f"{API_SERVICES}/{NAME}")
    assert GROUP not in await cluster.groups()
    assert (await cluster.get(RECIPES)).status == 404


async def test_a_client_need_not_wait_for_a_server_that_hangs(cluster: Aggregating) -> None:
    await cluster.register()
    cluster.kitchen.hangs.clear()
    reply = await cluster.get(f"{RECIPES}?timeout=50ms")
    assert (reply.status, reply.json["reason"]) == (504, "Timeout")
    assert reply.message == "Timeout: request did not complete within the allotted timeout"
    cluster.kitchen.hangs.set()
    assert (await cluster.get(f"{RECIPES}?timeout=30s")).status == 200


async def test_a_server_that_hangs_keeps_no_other_request_waiting(cluster: Aggregating) -> None:
    await cluster.register()
    cluster.kitchen.hangs.clear()
    waiting = asyncio.create_task(cluster.get(RECIPES))
    await reached(lambda: _some(cluster.kitchen.asked[-1] == RECIPES))
    assert (await cluster.get("/apis", accept=AGGREGATED)).status == 200
    assert (await cluster.get("/api/v1/pods")).status == 200
    assert not waiting.done()
    cluster.kitchen.hangs.set()
    assert (await waiting).status == 200


PLACE = ("default", "kitchen", 443)
SERVICE: Json = {"spec": {"ports": [{"port": 443, "name": "https"}]}}
READY: Json = {"endpoints": [{"addresses": ["127.0.0.1"]}], "ports": [{"name": "https", "port": 8443}]}


@pytest.mark.parametrize(
    ("service", "slices", "found"),
    [
        pytest.param(
            None, [], CheckResult("ServiceNotFound", 'service/kitchen in "default" is not present'), id="no service"
        ),
        pytest.param(
            {"spec": {"ports": [{"port": 80}]}},
            [READY],
            CheckResult("ServicePortError", 'service/kitchen in "default" is not listening on port 443'),
            id="another port",
        ),
        pytest.param(
            SERVICE,
            [],
            CheckResult("EndpointsNotFound", 'cannot find endpointslices for service/kitchen in "default"'),
            id="no slices",
        ),
        pytest.param(
            SERVICE,
            [{**READY, "endpoints": [{"conditions": {"ready": False}}]}],
            CheckResult(
                "MissingEndpoints",
                'endpointslices for service/kitchen in "default" have no addresses with port name "https"',
            ),
            id="nobody ready",
        ),
        pytest.param(SERVICE, [READY], None, id="somebody ready"),
        pytest.param({"spec": {"type": "ExternalName"}}, [], None, id="outside the cluster"),
    ],
)
def test_what_can_be_reported_without_asking_the_server(
    service: Json | None, slices: list[Json], found: CheckResult | None
) -> None:
    assert error_of_service(PLACE, service, slices) == found


def body_of(answer: Response) -> bytes:
    return answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)


async def _some(found: Any) -> Any:
    return found or None
