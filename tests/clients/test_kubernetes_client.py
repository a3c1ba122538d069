"""The official Python client: typed and dynamic, lists in pages, patches, and watches that go on where they stopped."""

# The package says that it is typed, but much of it is not.
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from typing import Any

import pytest
from kubernetes import client, dynamic, watch
from kubernetes.client import ApiClient, AppsV1Api, AuthorizationV1Api, CoreV1Api, VersionApi
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic.exceptions import ConflictError, NotFoundError
from tests.clients.manifests import config_map, deployment

WATCH_SECONDS = 60
"""A watch that hangs ends by itself, and the test fails."""


@pytest.fixture
def core(api_client: ApiClient) -> CoreV1Api:
    return CoreV1Api(api_client)


@pytest.fixture
def apps(api_client: ApiClient) -> AppsV1Api:
    return AppsV1Api(api_client)


@pytest.fixture
def anything(api_client: ApiClient) -> Any:
    return dynamic.DynamicClient(api_client)


def _config_map(name: str, **data: str) -> client.V1ConfigMap:
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels={"of": "test"}), data=data)


def _name(obj: Any) -> str:
    return str(obj.metadata.name)


def test_typed_objects_are_created_read_replaced_and_deleted(core: CoreV1Api, namespace: str) -> None:
    created = core.create_namespaced_config_map(namespace, _config_map("settings", colour="red"))
    assert created.metadata is not None
    assert created.metadata.uid
    assert created.metadata.creation_timestamp is not None
    created.data = {"colour": "blue"}
    replaced = core.replace_namespaced_config_map("settings", namespace, created)
    assert replaced.data == {"colour": "blue"}
    with pytest.raises(ApiException) as lost:  # Its resourceVersion is that of the first write.
        core.replace_namespaced_config_map("settings", namespace, created)
    assert (lost.value.status, lost.value.reason) == (409, "Conflict")
    assert core.read_namespaced_config_map("settings", namespace).data == {"colour": "blue"}
    deleted: Any = core.delete_namespaced_config_map("settings", namespace)
    assert deleted["status"] == "Success"
    with pytest.raises(ApiException) as gone:
        core.read_namespaced_config_map("settings", namespace)
    assert gone.value.status == 404
    assert '"reason":"NotFound"' in str(gone.value.body)


def test_workloads_have_status_and_scale_of_their_own(apps: AppsV1Api, api_client: ApiClient, namespace: str) -> None:
    manifest = deployment("web", replicas=2)
    body = client.V1Deployment.from_dict(manifest)
    assert body is not None
    created = apps.create_namespaced_deployment(namespace, body)
    assert created.spec is not None
    assert created.spec.revision_history_limit == 10
    scale = apps.read_namespaced_deployment_scale("web", namespace)
    assert scale.spec is not None
    assert scale.spec.replicas == 2
    scale.spec.replicas = 5
    assert scale.metadata is not None
    scale.metadata.resource_version = None  # The Deployment controller writes too.
    apps.replace_namespaced_deployment_scale("web", namespace, scale)
    status = {"status": {"replicas": 5, "readyReplicas": 4}, "spec": {"replicas": 9}}
    patched = apps.patch_namespaced_deployment_status("web", namespace, status)
    assert (patched.spec.replicas if patched.spec else None) == 5
    assert (patched.status.ready_replicas if patched.status else None) == 4
    deleted: Any = apps.delete_namespaced_deployment("web", namespace, propagation_policy="Background")
    assert deleted["status"] == "Success"


def test_a_list_comes_in_pages_of_one_moment(core: CoreV1Api, namespace: str) -> None:
    for number in range(5):
        core.create_namespaced_config_map(namespace, _config_map(f"item-{number}"))
    first = core.list_namespaced_config_map(namespace, limit=2, label_selector="of=test")
    core.create_namespaced_config_map(namespace, _config_map("item-9"))
    names, page = [_name(item) for item in first.items], first
    while page.metadata is not None and page.metadata.var_continue:
        page = core.list_namespaced_config_map(
            namespace, limit=2, label_selector="of=test", _continue=page.metadata.var_continue
        )
        names += [_name(item) for item in page.items]
        assert page.metadata is not None and first.metadata is not None
        assert page.metadata.resource_version == first.metadata.resource_version
    assert names == [f"item-{number}" for number in range(5)]
    chosen = core.list_namespaced_config_map(namespace, field_selector="metadata.name=item-9")
    assert [_name(item) for item in chosen.items] == ["item-9"]
    core.delete_collection_namespaced_config_map(namespace, label_selector="of=test")
    assert core.list_namespaced_config_map(namespace, label_selector="of=test").items == []


def test_a_watch_goes_on_after_the_revision_it_is_given(core: CoreV1Api, namespace: str) -> None:
    start = core.list_namespaced_config_map(namespace, label_selector="of=test").metadata
    assert start is not None
    core.create_namespaced_config_map(namespace, _config_map("settings", colour="red"))
    core.patch_namespaced_config_map("settings", namespace, {"data": {"colour": "blue"}})
    core.delete_namespaced_config_map("settings", namespace)

    def seen_after(revision: str, count: int) -> list[tuple[str, str, str]]:
        stream = watch.Watch()
        changes = []
        for event in stream.stream(
            core.list_namespaced_config_map,
            namespace,
            label_selector="of=test",
            resource_version=revision,
            timeout_seconds=WATCH_SECONDS,
        ):
            obj = event["object"]
            changes.append((event["type"], obj.data["colour"], obj.metadata.resource_version))
            if len(changes) == count:
                stream.stop()
        return changes

    everything = seen_after(str(start.resource_version), 3)
    assert [event[:2] for event in everything] == [("ADDED", "red"), ("MODIFIED", "blue"), ("DELETED", "blue")]
    assert seen_after(everything[0][2], 2) == everything[1:]


def test_a_watch_ends_when_its_time_is_over(core: CoreV1Api, namespace: str) -> None:
    core.create_namespaced_config_map(namespace, _config_map("settings"))
    events = watch.Watch().stream(
        core.list_namespaced_config_map, namespace, label_selector="of=test", timeout_seconds=1
    )
    assert [(event["type"], _name(event["object"])) for event in events] == [("ADDED", "settings")]


def test_a_watch_can_start_with_what_is_there_and_say_when_that_is_all(core: CoreV1Api, namespace: str) -> None:
    core.create_namespaced_config_map(namespace, _config_map("settings"))
    stream = watch.Watch()
    types = []
    for event in stream.stream(
        core.list_namespaced_config_map,
        namespace,
        label_selector="of=test",
        send_initial_events=True,
        resource_version_match="NotOlderThan",
        allow_watch_bookmarks=True,
        timeout_seconds=WATCH_SECONDS,
    ):
        types.append(event["type"])
        if event["type"] == "BOOKMARK":
            annotations = event["raw_object"]["metadata"]["annotations"]
            assert annotations == {"k8s.io/initial-events-end": "true"}
            stream.stop()
    assert types == ["ADDED", "BOOKMARK"]


def test_every_kind_of_patch_is_understood(core: CoreV1Api, apps: AppsV1Api, namespace: str) -> None:
    core.create_namespaced_config_map(namespace, _config_map("settings", a="1", b="2"))

    def patched(body: Any, content_type: str, **options: Any) -> dict[str, str] | None:
        return core.patch_namespaced_config_map("settings", namespace, body, _content_type=content_type, **options).data

    assert patched({"data": {"a": None}}, "application/merge-patch+json") == {"b": "2"}
    assert patched({"data": {"c": "3"}}, "application/strategic-merge-patch+json") == {"b": "2", "c": "3"}
    steps = [{"op": "replace", "path": "/data/b", "value": "two"}, {"op": "remove", "path": "/data/c"}]
    assert patched(steps, "application/json-patch+json") == {"b": "two"}
    applied = config_map("settings", d="4")
    assert patched(applied, "application/apply-patch+yaml", field_manager="test") == {"b": "two", "d": "4"}
    with pytest.raises(ApiException) as conflict:
        patched(config_map("settings", d="5"), "application/apply-patch+yaml", field_manager="rival")
    assert conflict.value.status == 409
    assert '"reason":"FieldManagerConflict"' in str(conflict.value.body)
    forced = config_map("settings", d="5")
    assert patched(forced, "application/apply-patch+yaml", field_manager="rival", force=True) == {"b": "two", "d": "5"}


def test_the_server_says_what_it_is_and_what_the_caller_may_do(api_client: ApiClient) -> None:
    assert VersionApi(api_client).get_code().major == "1"
    review = client.V1SelfSubjectAccessReview(
        spec=client.V1SelfSubjectAccessReviewSpec(
            resource_attributes=client.V1ResourceAttributes(verb="create", resource="pods", namespace="default")
        )
    )
    answer = AuthorizationV1Api(api_client).create_self_subject_access_review(review)
    assert answer.status is not None
    assert answer.status.allowed is True


def test_the_dynamic_client_finds_kinds_and_uses_them(anything: Any, namespace: str) -> None:
    kind = anything.resources.get(api_version="v1", kind="ConfigMap")
    assert kind.name == "configmaps"
    assert anything.resources.get(api_version="apps/v1", kind="Deployment").subresources.keys() >= {"scale", "status"}
    created = kind.create(body=config_map("settings", colour="red"), namespace=namespace)
    revision = created.metadata.resourceVersion
    assert kind.get(name="settings", namespace=namespace).data.colour == "red"
    patched = kind.patch(
        body={"data": {"colour": "blue"}},
        name="settings",
        namespace=namespace,
        content_type="application/merge-patch+json",
    )
    assert patched.data.to_dict() == {"colour": "blue"}
    applied = kind.server_side_apply(
        body=config_map("settings", size="big"), name="settings", namespace=namespace, field_manager="test"
    )
    assert applied.data.to_dict() == {"colour": "blue", "size": "big"}
    with pytest.raises(ConflictError):
        kind.server_side_apply(
            body=config_map("settings", size="small"), name="settings", namespace=namespace, field_manager="rival"
        )
    kind.delete(name="settings", namespace=namespace)
    with pytest.raises(NotFoundError):
        kind.get(name="settings", namespace=namespace)

    seen = []
    for event in kind.watch(
        namespace=namespace,
        field_selector="metadata.name=settings",
        resource_version=revision,
        timeout=WATCH_SECONDS,
    ):
        seen.append((event["type"], event["object"].data.to_dict()))
        if event["type"] == "DELETED":
            break
    assert seen == [
        ("MODIFIED", {"colour": "blue"}),
        ("MODIFIED", {"colour": "blue", "size": "big"}),
        ("DELETED", {"colour": "blue", "size": "big"}),
    ]
