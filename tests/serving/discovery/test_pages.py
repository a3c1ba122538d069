"""The paths that are not objects: health, version, discovery, OpenAPI, metrics."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from tests.server.in_process import CONFIG_MAPS, InProcess, config_map, control_plane

from pinnace.cluster.cluster import running
from pinnace.cluster.settings import Settings


@pytest.mark.parametrize("page", ["healthz", "livez", "readyz"])
async def test_a_healthy_server_says_ok(api: InProcess, page: str) -> None:
    reply = await api.get(f"/{page}")
    assert (reply.status, reply.body) == (200, b"ok")
    verbose = await api.get(f"/{page}?verbose")
    lines = verbose.body.decode().splitlines()
    assert "[+]ping ok" in lines
    assert lines[-1] == f"{page} check passed"
    assert (await api.get(f"/{page}/ping")).body == b"ok"
    assert (await api.get(f"/{page}/nothing")).status == 404


async def test_a_server_that_is_not_ready_lives(api: InProcess) -> None:
    api.plane.health.is_ready = False
    reply = await api.get("/readyz")
    assert reply.status == 500
    assert "[-]poststarthook/start-cluster failed: reason withheld" in reply.body.decode()
    assert (await api.get("/livez")).status == 200
    assert (await api.get("/healthz")).status == 200


async def test_the_version_is_the_minor_that_is_served() -> None:
    async with control_plane(settings=Settings(kubernetes_version="1.31")) as api:
        version = (await api.get("/version")).json
        assert (version["major"], version["minor"]) == ("1", "31")
        assert version["gitVersion"].startswith("v1.31.0")


async def test_an_older_minor_serves_what_it_had() -> None:
    async with control_plane(settings=Settings(kubernetes_version="1.25", old_versions=False)) as api:
        groups = {group["name"] for group in (await api.get("/apis")).json["groups"]}
        assert "resource.k8s.io" not in groups
        assert "autoscaling" in groups
        assert (await api.get("/apis/autoscaling/v2beta2")).status == 200, "removed in 1.26"
        assert (await api.get("/apis/autoscaling/v2beta1")).status == 404, "removed in 1.25"


async def test_discovery_lists_groups_and_resources(api: InProcess) -> None:
    core = (await api.get("/api/v1")).json
    pods = next(resource for resource in core["resources"] if resource["name"] == "pods")
    assert (pods["kind"], pods["namespaced"], "po" in pods["shortNames"]) == ("Pod", True, True)
    assert "apps" in {group["name"] for group in (await api.get("/apis")).json["groups"]}
    assert (await api.get("/apis/apps")).json["preferredVersion"]["version"] == "v1"
    assert (await api.get("/api")).json["versions"] == ["v1"]


@pytest.mark.parametrize("target", ["/openapi/v3/api/v1", "/openapi/v2"])
async def test_descriptions_are_sent_once(api: InProcess, target: str) -> None:
    first = await api.get(target)
    assert first.status == 200
    (etag,) = first.header("etag")
    again = await api.get(target, if_none_match=etag)
    assert (again.status, again.body, again.header("etag")) == (304, b"", [etag])
    other = await api.get(target, if_none_match='"other"')
    assert other.body == first.body
    packed = await api.get(target, accept_encoding="gzip")
    assert gzip.decompress(packed.body) == first.body
    assert packed.header("content-encoding") == ["gzip"]


async def test_the_index_of_descriptions_names_every_group(api: InProcess) -> None:
    paths = (await api.get("/openapi/v3")).json["paths"]
    assert {"api/v1", "apis/apps/v1"} <= paths.keys()
    described = await api.get(paths["apis/apps/v1"]["serverRelativeURL"])
    assert "io.k8s.api.apps.v1.Deployment" in described.json["components"]["schemas"]


async def test_metrics_count_requests_and_objects(api: InProcess) -> None:
    await api.made(CONFIG_MAPS, config_map())
    await api.get(f"{CONFIG_MAPS}/nothing")
    watch = await api.watch(f"{CONFIG_MAPS}?watch=1")
    text = (await api.get("/metrics")).body.decode()
    watch.close()
    samples = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if line[:1] != "#"}

    def values_of(name: str, **labels: str) -> list[float]:
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        return [
            value
            for sample, value in samples.items()
            if sample.partition("{")[0] == name and all(label in sample for label in wanted)
        ]

    assert values_of("apiserver_request_total", verb="POST", resource="configmaps", code="201")
    assert values_of("apiserver_request_total", verb="GET", resource="configmaps", code="404") == [1.0]
    for suffix in ("bucket", "sum", "count"):
        assert values_of(f"apiserver_request_duration_seconds_{suffix}", resource="configmaps")
    assert values_of("apiserver_storage_objects", resource="configmaps")[0] >= 1
    assert values_of("process_cpu_seconds_total")
    assert values_of("process_resident_memory_bytes")
    for line in text.splitlines():
        if line[:1] != "#":
            float(line.rpartition(" ")[2])


async def test_the_root_says_what_there_is(api: InProcess) -> None:
    paths: list[Any] = (await api.get("/")).json["paths"]
    assert {"/api/v1", "/apis/apps/v1", "/healthz", "/metrics", "/openapi/v3", "/version"} <= set(paths)
    for path in paths:
        assert (await api.get(path)).status == 200, path


async def test_the_root_says_where_the_server_is() -> None:
    async with running(Settings(controllers=False)) as cluster:
        addresses = (await InProcess(cluster.plane).get("/api")).json["serverAddressByClientCIDRs"]
        where = cluster.url.removeprefix("https://")
    assert addresses == [{"clientCIDR": "0.0.0.0/0", "serverAddress": where}]


@pytest.mark.parametrize("path", ["/healthz/", "/livez/", "/readyz/", "/readyz/nothing"])
async def test_a_check_without_a_name_or_with_an_unknown_one_is_not_found(api: InProcess, path: str) -> None:
    reply = await api.get(path)
    assert (reply.status, reply.body) == (404, b"404 page not found\n")


@pytest.mark.parametrize("path", ["/openapi/v3/", "/openapi/v3/nothing", "/openapi/v3/apis/apps/v9"])
async def test_a_document_that_does_not_exist_is_an_empty_404(api: InProcess, path: str) -> None:
    reply = await api.get(path)
    assert (reply.status, reply.body, reply.header("content-type")) == (404, b"", [])


async def test_the_index_page_is_the_root(api: InProcess) -> None:
    assert (await api.get("/index.html")).json == (await api.get("/")).json
