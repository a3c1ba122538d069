"""Indentation and line breaks of answers, for people and for programs."""

from __future__ import annotations

import json

import pytest
from tests.server.in_process import CONFIG_MAPS, JSON, MERGE, TABLE, InProcess

METADATA = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
ONE = f"{CONFIG_MAPS}/one"
DISCOVERY = ["/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1"]


@pytest.fixture
async def filled(api: InProcess) -> InProcess:
    await api.made(CONFIG_MAPS, {"metadata": {"name": "one"}, "data": {"k": "v"}})
    return api


@pytest.mark.parametrize("accept", [JSON, TABLE, METADATA, "*/*"])
@pytest.mark.parametrize("target", [ONE, CONFIG_MAPS, f"{CONFIG_MAPS}?limit=1", f"{CONFIG_MAPS}?labelSelector=a%3Db"])
async def test_answers_for_programs_are_one_line_with_a_newline(filled: InProcess, target: str, accept: str) -> None:
    if "/one" not in target and accept == METADATA:
        accept = accept.replace("Metadata;", "MetadataList;")
    body = (await filled.get(target, accept=accept)).body
    assert body.count(b"\n") == 1
    assert body.endswith(b"}\n")


async def test_a_write_is_answered_with_indentation_too(filled: InProcess) -> None:
    replies = [
        await filled.post(CONFIG_MAPS, {"metadata": {"name": "two"}}),
        await filled.patch(ONE, {"data": {"k": "w"}}, MERGE),
        await filled.delete(ONE),
        await filled.delete(ONE),
    ]
    assert [reply.status for reply in replies] == [201, 200, 200, 404]
    assert all(reply.body.count(b"\n") == 1 and reply.body.endswith(b"}\n") for reply in replies)


@pytest.mark.parametrize("target", [*DISCOVERY, ONE, CONFIG_MAPS, f"{CONFIG_MAPS}/none", "/api/v1/nowhere"])
async def test_people_get_lines_if_they_say_so_or_if_their_program_shows_it_to_them(
    filled: InProcess, target: str
) -> None:
    plain = await filled.get(target)
    assert plain.body == json.dumps(plain.json, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
    lines = json.dumps(plain.json, indent=2, ensure_ascii=False).encode()
    assert (await filled.get(target, accept=f"{JSON};pretty=1")).body == lines
    assert (await filled.get(f"{target}?pretty=true")).body == lines
    assert (await filled.get(target, user_agent="curl/8.0")).body == lines
    # The Accept header counts more than the query, and that more than the user agent.
    assert (await filled.get(f"{target}?pretty=0", accept=f"{JSON};pretty=1")).body == lines
    assert (await filled.get(f"{target}?pretty=0", user_agent="curl/8.0")).body == plain.body
    assert (await filled.get(target, accept=f"{JSON};pretty=true")).body == plain.body


@pytest.mark.parametrize("target", ["/api", "/apis"])
async def test_aggregated_discovery_is_no_exception(api: InProcess, target: str) -> None:
    plain = await api.get(target, accept=AGGREGATED)
    assert plain.body.count(b"\n") == 1
    lines = json.dumps(plain.json, indent=2).encode()
    for reply in (
        await api.get(target, accept=f"{AGGREGATED};pretty=1"),
        await api.get(f"{target}?pretty=1", accept=AGGREGATED),
    ):
        assert reply.body == lines
        assert reply.header("content-type") == plain.header("content-type")
        assert reply.header("etag") == plain.header("etag")


@pytest.mark.parametrize("target", [CONFIG_MAPS, ONE, "/api", "/apis/apps", "/version", f"{CONFIG_MAPS}?pretty=0"])
async def test_that_nothing_can_be_shown_is_reported_in_lines(filled: InProcess, target: str) -> None:
    reply = await filled.get(target, accept="text/html")
    assert reply.status == 406
    assert reply.body == json.dumps(reply.json, indent=2).encode()


async def test_openapi_v2_has_no_words_for_it(api: InProcess) -> None:
    reply = await api.get("/openapi/v2", accept="text/html")
    assert (reply.status, reply.body, reply.header("content-type")) == (406, b"", [])


@pytest.mark.parametrize(
    ("accept", "status"),
    [("*/*", 200), ("text/html, application/json;q=0.1", 200), ("application/*", 406), ("application/yaml", 406)],
)
async def test_the_version_is_reported_in_json_alone(api: InProcess, accept: str, status: int) -> None:
    assert (await api.get("/version", accept=accept)).status == status
