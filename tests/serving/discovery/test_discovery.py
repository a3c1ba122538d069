"""Discovery lists the served groups, versions and resources, as the real server does."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from pinnace.model.objects import Kind
from pinnace.model.resources import Registry, Resource, Subresource, version_rank
from pinnace.schema.shape import Schema
from pinnace.serving.discovery.discovery import DiscoveryPages, storage_version_hash
from pinnace.serving.discovery.documents import ServedDocument

CHANGE = ("get", "patch", "update")
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


def _resource(kind: Kind, plural: str, **more: Any) -> Resource:
    defaults: dict[str, Any] = {"namespaced": True, "stored": kind, "schema_of": lambda: Schema({})}
    return Resource(kind=kind, plural=plural, singular=kind.name.lower(), **{**defaults, **more})


DEPLOYMENT = Kind("apps", "v1", "Deployment")
SCALE = Kind("autoscaling", "v1", "Scale")


@pytest.fixture
def registry() -> Registry:
    below = (Subresource("status", DEPLOYMENT, CHANGE), Subresource("scale", SCALE, CHANGE))
    return Registry(
        [
            _resource(Kind("", "v1", "Pod"), "pods", short_names=("po",), categories=("all",)),
            _resource(Kind("", "v1", "Binding"), "bindings", verbs=("create",)),
            _resource(DEPLOYMENT, "deployments", short_names=("deploy",), subresources=below),
            _resource(Kind("autoscaling", "v1", "HorizontalPodAutoscaler"), "horizontalpodautoscalers"),
            _resource(Kind("autoscaling", "v2", "HorizontalPodAutoscaler"), "horizontalpodautoscalers"),
        ]
    )


def _read(page: ServedDocument | None) -> Any:
    assert page is not None
    return orjson.loads(page.body)


def test_the_roots_list_versions_and_groups(registry: Registry) -> None:
    discovery = DiscoveryPages(registry)
    discovery.page("/api")
    discovery.set_address("127.0.0.1:6443")
    assert _read(discovery.page("/api")) == {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:6443"}],
    }
    groups = _read(discovery.page("/apis"))["groups"]
    assert [group["name"] for group in groups] == ["apps", "autoscaling"]
    assert groups[1]["preferredVersion"] == {"groupVersion": "autoscaling/v2", "version": "v2"}


def test_a_group_names_its_versions_the_preferred_one_first(registry: Registry) -> None:
    group = _read(DiscoveryPages(registry).page("/apis/autoscaling"))
    assert [version["version"] for version in group["versions"]] == ["v2", "v1"]


def test_a_version_lists_resources_and_subresources_by_name(registry: Registry) -> None:
    page = _read(DiscoveryPages(registry).page("/apis/apps/v1"))
    assert (page["kind"], page["apiVersion"], page["groupVersion"]) == ("APIResourceList", "v1", "apps/v1")
    assert [row["name"] for row in page["resources"]] == ["deployments", "deployments/scale", "deployments/status"]
    assert page["resources"][0] == {
        "name": "deployments",
        "singularName": "deployment",
        "namespaced": True,
        "kind": "Deployment",
        "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        "shortNames": ["deploy"],
        "storageVersionHash": "8aSe+NMegvE=",
    }
    assert page["resources"][1] == {
        "name": "deployments/scale",
        "singularName": "",
        "namespaced": True,
        "group": "autoscaling",
        "version": "v1",
        "kind": "Scale",
        "verbs": ["get", "patch", "update"],
    }


def test_a_resource_that_is_not_stored_has_no_storage_hash(registry: Registry) -> None:
    binding, pod = _read(DiscoveryPages(registry).page("/api/v1"))["resources"]
    assert "storageVersionHash" not in binding
    assert pod["storageVersionHash"] == storage_version_hash(Kind("", "v1", "Pod"))


def test_everything_can_be_had_at_once(registry: Registry) -> None:
    page = DiscoveryPages(registry).page("/apis", AGGREGATED)
    assert page is not None
    assert page.content_type == "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    assert ("Vary", "Accept") in page.headers
    read = _read(page)
    assert (read["kind"], read["apiVersion"]) == ("APIGroupDiscoveryList", "apidiscovery.k8s.io/v2")
    apps, autoscaling = read["items"]
    assert apps["metadata"] == {"name": "apps"}
    assert [version["version"] for version in autoscaling["versions"]] == ["v2", "v1"]
    deployments = apps["versions"][0]["resources"][0]
    assert deployments["responseKind"] == {"group": "", "version": "", "kind": "Deployment"}
    assert deployments["subresources"][0] == {
        "subresource": "scale",
        "responseKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
        "verbs": ["get", "patch", "update"],
    }


@pytest.mark.parametrize(
    ("accept", "version"),
    [
        (AGGREGATED, "v2"),
        ("application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json", "v2beta1"),
        ("application/json;g=apidiscovery.k8s.io;v=v3;as=APIGroupDiscoveryList," + AGGREGATED, "v2"),
        ("application/json", ""),
        ("application/json," + AGGREGATED, ""),
        ("", ""),
    ],
)
def test_the_client_chooses_the_form(registry: Registry, accept: str, version: str) -> None:
    page = _read(DiscoveryPages(registry).page("/apis", accept))
    assert page["apiVersion"] == (f"apidiscovery.k8s.io/{version}" if version else "v1")


def test_a_client_that_holds_the_page_is_recognised(registry: Registry) -> None:
    page = DiscoveryPages(registry).page("/apis", AGGREGATED)
    assert page is not None
    assert page.is_held_by(page.etag)
    assert page.is_held_by(f'"other", {page.etag}')
    assert not page.is_held_by('"other"')
    assert not page.is_held_by("")


def test_pages_follow_the_registry(registry: Registry) -> None:
    discovery = DiscoveryPages(registry)
    before = discovery.page("/apis", AGGREGATED)
    assert discovery.page("/apis", AGGREGATED) is before
    boat = _resource(Kind("example.com", "v1", "Boat"), "boats")
    registry.add(boat)
    after = discovery.page("/apis", AGGREGATED)
    assert before is not None
    assert after is not None
    assert after.etag != before.etag
    assert discovery.page("/apis/example.com/v1") is not None
    registry.remove(boat)
    assert discovery.page("/apis/example.com/v1") is None


@pytest.mark.parametrize(
    "path", ["/apis/nothing", "/apis/apps/v9", "/api/v9", "/apis//v1", "/other", "/apis/apps/v1/pods"]
)
def test_there_is_no_page_of_what_is_not_served(registry: Registry, path: str) -> None:
    assert DiscoveryPages(registry).page(path) is None


def test_versions_rank_as_kubernetes_ranks_them() -> None:
    ranked = ["v10", "v2", "v1", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "v11alpha2", "foo1", "foo10"]
    assert sorted(reversed(ranked), key=version_rank) == ranked
