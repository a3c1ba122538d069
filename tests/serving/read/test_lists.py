"""Lists: order, pages, revisions and options."""

from __future__ import annotations

import asyncio
import base64
from urllib.parse import quote

import pytest
from tests.server.conftest import fill
from tests.server.in_process import CONFIG_MAPS, PODS, InProcess, config_map, control_plane, pod

from pinnace.serving.cache import fanout
from pinnace.serving.read.continue_tokens import Continuation
from pinnace.store.memory import MemoryStore


async def test_a_list_is_ordered_by_namespace_and_name(alone: InProcess) -> None:
    for namespace, name in (("kube-system", "a"), ("default", "b"), ("default", "a")):
        await alone.made(f"/api/v1/namespaces/{namespace}/configmaps", config_map(name, labels={"mine": "yes"}))
    reply = await alone.get("/api/v1/configmaps?labelSelector=mine")
    obj = [(item["metadata"]["namespace"], item["metadata"]["name"]) for item in reply.json["items"]]
    assert obj == [("default", "a"), ("default", "b"), ("kube-system", "a")]
    assert reply.json["kind"] == "ConfigMapList"
    assert int(reply.version) == alone.plane.fanout.revision


async def test_pages_show_the_first_pages_revision_and_each_object_once_while_writes_go_on(alone: InProcess) -> None:
    names = await fill(alone, 25)
    first = await alone.get(f"{CONFIG_MAPS}?limit=4")
    pages, seen, token = [first], list(first.names), first.json["metadata"]["continue"]
    assert first.json["metadata"]["remainingItemCount"] == 21
    step = 0
    while token:
        await alone.delete(f"{CONFIG_MAPS}/cm-{step + 10:04}")
        await alone.made(CONFIG_MAPS, config_map(f"cm-{step:04}-new"))
        await alone.patch(f"{CONFIG_MAPS}/cm-{24 - step:04}", {"data": {"a": "changed"}})
        step += 1
        page = await alone.get(f"{CONFIG_MAPS}?limit=4&continue={token}")
        assert page.status == 200
        pages.append(page)
        seen += page.names
        token = page.json["metadata"].get("continue", "")
    assert step > 4
    assert seen == names
    assert {page.version for page in pages} == {first.version}
    assert all(item["data"] == {"a": "x"} for page in pages for item in page.json["items"])


async def test_pages_of_a_selection_hold_what_is_selected(alone: InProcess) -> None:
    for number in range(9):
        await alone.made(CONFIG_MAPS, config_map(f"cm-{number}", labels={"even": str(number % 2 == 0).lower()}))
    seen: list[str] = []
    token = ""
    while True:
        page = await alone.get(f"{CONFIG_MAPS}?limit=2&labelSelector=even%3Dtrue&continue={token}")
        seen += page.names
        assert "remainingItemCount" not in page.json["metadata"], "who selects is not told how many are left"
        token = page.json["metadata"].get("continue", "")
        if not token:
            break
    assert seen == ["cm-0", "cm-2", "cm-4", "cm-6", "cm-8"]


async def test_a_token_that_is_too_old_is_answered_with_one_that_goes_on_inconsistently(alone: InProcess) -> None:
    await fill(alone, 6)
    first = await alone.get(f"{CONFIG_MAPS}?limit=2")
    await alone.made(CONFIG_MAPS, config_map("cm-0009"))
    await alone.plane.store.compact(alone.plane.store.revision)
    expired = await alone.get(f"{CONFIG_MAPS}?limit=2&continue={first.json['metadata']['continue']}")
    assert (expired.status, expired.json["reason"]) == (410, "Expired")
    token = expired.json["metadata"]["continue"]
    for query in ("limit=50", "limit=1&resourceVersion=0"):  # Any state will do: no pages.
        rest = await alone.get(f"{CONFIG_MAPS}?{query}&continue={token}")
        assert rest.names == ["cm-0002", "cm-0003", "cm-0004", "cm-0005", "cm-0009"]


@pytest.mark.parametrize(
    "token",
    [
        "xyz",
        "%00",
        "e30",
        "W10",
        "bnVsbA",
        "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MCwic3RhcnQiOiJhIn0",
        "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MX0",
        "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6IjEiLCJzdGFydCI6WzFdfQ",
        "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIuLi94In0",
        "eyJ2Ijoib2xkIiwicnYiOjEsInN0YXJ0IjoiYSJ9",
    ],
)
async def test_a_broken_token_is_refused(api: InProcess, token: str) -> None:
    reply = await api.get(f"{CONFIG_MAPS}?limit=1&continue={token}")
    assert (reply.status, reply.json["reason"]) == (400, "BadRequest")
    assert reply.message.startswith("invalid continue token: continue key is not valid: ")


def _token(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    ("token", "why"),
    [
        ("!!", "illegal base64 data at input byte 0"),
        ("abcde", "illegal base64 data at input byte 4"),
        ("YQ==", "illegal base64 data at input byte 2"),
        (_token("[]"), "json: cannot unmarshal array into Go value of type storage.continueToken"),
        (_token("null"), "server does not recognize this encoded version "),
        (
            _token('{"v":"meta.k8s.io/v1","rv":"1","start":"s"}'),
            "json: cannot unmarshal string into Go struct field continueToken.rv of type int64",
        ),
        (
            _token('{"v":"meta.k8s.io/v1","rv":9223372036854775808,"start":"s"}'),
            "json: cannot unmarshal number 9223372036854775808 into Go struct field continueToken.rv of type int64",
        ),
        (
            _token('{"v":"meta.k8s.io/v1","rv":1,"start":5}'),
            "json: cannot unmarshal number into Go struct field continueToken.start of type string",
        ),
        (_token('{"v":"meta.k8s.io/v1","rv":1}'), "encoded start key empty (version meta.k8s.io/v1)"),
        (_token('{"v":"meta.k8s.io/v1","rv":1,"start":"../x"}'), "../x"),
    ],
)
async def test_a_broken_token_is_refused_in_kubernetes_words(api: InProcess, token: str, why: str) -> None:
    reply = await api.get(f"{CONFIG_MAPS}?limit=1&continue={quote(token)}")
    assert (reply.status, reply.message) == (400, f"invalid continue token: continue key is not valid: {why}")


async def test_any_revision_below_none_means_the_latest(alone: InProcess) -> None:
    await fill(alone, 3)
    token = _token('{"v":"meta.k8s.io/v1","rv":-7,"start":"default/cm-0000\\u0000"}')
    assert (await alone.get(f"{CONFIG_MAPS}?continue={token}")).names == ["cm-0001", "cm-0002"]


async def test_a_token_of_the_future_is_refused(api: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fanout, "FRESHNESS_SECONDS", 0.01)
    token = Continuation(10**9, "default/a").encode()
    assert (await api.get(f"{CONFIG_MAPS}?limit=1&continue={token}")).status == 504


async def test_an_exact_revision_shows_things_as_they_were(alone: InProcess) -> None:
    await fill(alone, 2)
    then = alone.plane.fanout.revision
    await alone.delete(f"{CONFIG_MAPS}/cm-0000")
    await alone.made(CONFIG_MAPS, config_map("later"))
    exact = await alone.get(f"{CONFIG_MAPS}?resourceVersion={then}&resourceVersionMatch=Exact")
    assert (exact.names, exact.version) == (["cm-0000", "cm-0001"], str(then))
    limited = await alone.get(f"{CONFIG_MAPS}?resourceVersion={then}&limit=1")
    assert (limited.names, limited.version) == (["cm-0000"], str(then)), "a limit makes a revision exact"
    newer = await alone.get(f"{CONFIG_MAPS}?resourceVersion={then}&resourceVersionMatch=NotOlderThan")
    assert newer.names == ["cm-0001", "later"]
    assert (await alone.get(f"{CONFIG_MAPS}?resourceVersion=0")).names == ["cm-0001", "later"]
    await alone.plane.store.compact(alone.plane.store.revision)
    gone = await alone.get(f"{CONFIG_MAPS}?resourceVersion={then}&resourceVersionMatch=Exact")
    assert (gone.status, gone.json["reason"]) == (410, "Expired")
    assert gone.message == "The resourceVersion for the provided list is too old."


async def test_a_list_of_one_name_has_no_pages(alone: InProcess) -> None:
    await fill(alone, 2)
    then = alone.plane.fanout.revision
    await alone.patch(f"{CONFIG_MAPS}/cm-0000", {"data": {"a": "changed"}})
    now = str(alone.plane.fanout.revision)
    named = "limit=1&fieldSelector=metadata.name%3Dcm-0000"
    limited = await alone.get(f"{CONFIG_MAPS}?{named}&resourceVersion={then}")
    assert (limited.version, limited.json["items"][0]["data"]) == (now, {"a": "changed"}), "a limit means nothing"
    assert (await alone.get(f"{CONFIG_MAPS}?{named}&continue=nonsense")).status == 400, "a token is read all the same"
    everywhere = await alone.get(f"/api/v1/configmaps?{named}&resourceVersion={then}")
    assert everywhere.version == str(then), "there may be one in each namespace"


async def test_an_exact_revision_from_before_this_process_shows_what_was_deleted_since() -> None:
    store = MemoryStore()
    async with control_plane(store) as first:
        await first.delete(CONFIG_MAPS)
        await fill(first, 2)
        then = store.revision
        for name in ("cm-0000", "cm-0001"):
            await first.delete(f"{CONFIG_MAPS}/{name}")
        # Not closed: the store lives on under the next server.
        async with control_plane(store) as second:
            exact = await second.get(f"{CONFIG_MAPS}?resourceVersion={then}&resourceVersionMatch=Exact")
            assert exact.names == ["cm-0000", "cm-0001"]


async def test_a_revision_of_the_future_is_waited_for_and_then_given_up(
    alone: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    coming = alone.plane.fanout.revision + 1
    waiting = asyncio.create_task(alone.get(f"{CONFIG_MAPS}?resourceVersion={coming}"))
    await asyncio.sleep(0)
    await alone.made(CONFIG_MAPS, config_map("awaited"))
    assert (await waiting).names == ["awaited"]
    reading = asyncio.create_task(alone.get(f"{CONFIG_MAPS}/awaited?resourceVersion={coming + 1}"))
    token = Continuation(coming + 1, "default/a").encode()
    going_on = asyncio.create_task(alone.get(f"{CONFIG_MAPS}?continue={token}"))
    await asyncio.sleep(0)
    await alone.made(CONFIG_MAPS, config_map("b"))
    assert (await reading).json["metadata"]["name"] == "awaited"
    assert (await going_on).names == ["awaited", "b"]
    monkeypatch.setattr(fanout, "FRESHNESS_SECONDS", 0.01)
    late = await alone.get(f"{CONFIG_MAPS}?resourceVersion={coming + 10}")
    assert (late.status, late.json["reason"], late.header("retry-after")) == (504, "Timeout", ["1"])
    assert late.json["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("resourceVersionMatch=Exact", 422),
        ("sendInitialEvents=", 422),
        ("resourceVersionMatch=Exact&resourceVersion=0", 422),
        ("resourceVersionMatch=Foo&resourceVersion=1", 422),
        ("resourceVersion=x", 400),
        ("resourceVersion=-1", 400),
        ("limit=x", 400),
        ("timeoutSeconds=x", 400),
        ("continue=e30", 400),
        ("limit=1_0", 400),
        ("limit=99999999999999999999", 400),
        ("limit=%C2%B2", 400),
        ("sendInitialEvents=true", 422),
        ("labelSelector=-", 400),
        ("labelSelector=a%20in%20(", 400),
        ("labelSelector=a%3D%3D%3Db", 400),
        ("fieldSelector=foo", 400),
        ("fieldSelector=foo%3Dbar", 400),
        ("watch=1&resourceVersion=x", 500),
        ("watch=1&timeoutSeconds=x", 400),
        ("watch=1&sendInitialEvents=true", 422),
        ("watch=1&resourceVersionMatch=NotOlderThan", 422),
        ("watch=1&fieldSelector=foo%3Dbar", 400),
    ],
)
async def test_options_that_cannot_be_meant_are_refused(api: InProcess, query: str, code: int) -> None:
    reply = await api.get(f"{CONFIG_MAPS}?{query}")
    assert (reply.status, reply.json["kind"]) == (code, "Status")


async def test_a_limit_below_one_is_none(alone: InProcess) -> None:
    names = await fill(alone, 3)
    for limit in ("-1", "0"):
        assert (await alone.get(f"{CONFIG_MAPS}?limit={limit}")).names == names


async def test_field_selectors_choose_by_name_and_by_what_the_kind_offers(api: InProcess) -> None:
    await api.made(PODS, pod("a", nodeName="n1"))
    await api.made(PODS, pod("b"))
    await api.made("/api/v1/namespaces/kube-system/pods", pod("a"))

    async def chosen(target: str, selector: str) -> list[str]:
        reply = await api.get(f"{target}?fieldSelector={quote(selector)}")
        return [f"{item['metadata']['namespace']}/{item['metadata']['name']}" for item in reply.json["items"]]

    assert await chosen(PODS, "spec.nodeName=n1") == ["default/a"]
    assert await chosen(PODS, "spec.nodeName!=n1,status.phase=Pending") == ["default/b"]
    assert await chosen("/api/v1/pods", "metadata.name=a") == ["default/a", "kube-system/a"]
    assert await chosen("/api/v1/pods", "metadata.name=a,metadata.namespace=default") == ["default/a"]
    assert await chosen("/api/v1/pods", "metadata.name=a,metadata.name!=a") == []
    assert await chosen("/api/v1/pods", "metadata.name=a,metadata.name=b") == []


async def test_a_list_at_any_revision_is_never_paged(api: InProcess) -> None:
    names = await fill(api, 3)
    whole = (await api.get(f"{CONFIG_MAPS}?limit=1&resourceVersion=0")).json
    assert {item["metadata"]["name"] for item in whole["items"]} >= set(names)
    assert "continue" not in whole["metadata"]


async def test_a_watch_cannot_go_on_with_a_list(api: InProcess) -> None:
    refused = await api.get(f"{CONFIG_MAPS}?watch=1&continue=abc")
    message = "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided"
    assert (refused.status, refused.message) == (422, f'ListOptions.meta.k8s.io "" is invalid: {message}')


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/apis/batch/v1/jobs", 'field label "spec.suspend" not supported for Job'),
        (
            "/apis/resource.k8s.io/v1/resourceslices",
            "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: spec.suspend",
        ),
        ("/api/v1/secrets", "field label not supported: spec.suspend"),
    ],
)
async def test_some_kinds_say_in_their_own_words_what_they_cannot_be_chosen_by(
    api: InProcess, path: str, message: str
) -> None:
    assert (await api.get(f"{path}?fieldSelector=spec.suspend=true")).message == message


HPAS = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"


@pytest.mark.parametrize(
    ("path", "view"),
    [
        (HPAS, ""),
        (HPAS.replace("v2", "v1"), ""),  # Converted.
        (HPAS, "PartialObjectMetadataList"),
    ],
)
async def test_items_of_built_in_kinds_leave_it_to_the_list_to_say_what_they_are(
    api: InProcess, path: str, view: str
) -> None:
    scaled = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    for name in ("one", "two"):
        spec = {"maxReplicas": 3, "scaleTargetRef": scaled}
        await api.post(HPAS, {"metadata": {"name": name}, "spec": spec})
    accept = {"accept": f"application/json;as={view};g=meta.k8s.io;v=v1"} if view else {}
    items = (await api.get(path, **accept)).json["items"]
    assert [item["metadata"]["name"] for item in items] == ["one", "two"]
    assert [item.get("kind") for item in items] == [view.removesuffix("List") or None] * 2
    assert [item.get("apiVersion") for item in items] == ["meta.k8s.io/v1" if view else None] * 2


@pytest.mark.parametrize("option", ["limit", "timeoutSeconds"])
async def test_a_number_that_is_left_out_is_none(api: InProcess, option: str) -> None:
    reply = await api.get(f"{CONFIG_MAPS}?{option}=")
    assert (reply.status, reply.message) == (400, 'strconv.ParseInt: parsing "": invalid syntax')


@pytest.mark.parametrize("message", ["0", "false", "FALSE", "False", "fAlSe"])
async def test_an_explicit_watch_of_false_is_a_list(api: InProcess, message: str) -> None:
    assert (await api.get(f"{CONFIG_MAPS}?watch={message}")).json["kind"] == "ConfigMapList"


@pytest.mark.parametrize("message", ["", "1", "f", "F", "no", "true"])
async def test_any_other_value_of_watch_is_a_watch(api: InProcess, message: str) -> None:
    await api.made(CONFIG_MAPS, config_map("one"))
    watch = await api.watch(f"{CONFIG_MAPS}?watch={message}")
    assert (await watch.next())["type"] == "ADDED"
