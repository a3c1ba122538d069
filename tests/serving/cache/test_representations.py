"""The representations of answers: tables, metadata, YAML, compressed and indented JSON."""

from __future__ import annotations

import gzip
import threading

import pytest
import yaml
from tests.server.conftest import fill
from tests.server.in_process import CONFIG_MAPS, PODS, TABLE, InProcess, pod

from pinnace.serving import compression
from pinnace.serving.compression import CompressedPiece, compress_piece

METADATA = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


async def test_a_table_has_columns_and_a_row_for_each_object(api: InProcess) -> None:
    await api.made(PODS, pod())
    table = (await api.get(PODS, accept=TABLE)).json
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert [column["name"] for column in table["columnDefinitions"]][:5] == [
        "Name",
        "Ready",
        "Status",
        "Restarts",
        "Age",
    ]
    row = table["rows"][0]
    assert row["cells"][:3] == ["web", "0/1", "Pending"]
    assert (row["object"]["kind"], row["object"]["metadata"]["name"]) == ("PartialObjectMetadata", "web")
    single = (await api.get(f"{PODS}/web", accept=TABLE)).json
    assert single["rows"][0]["object"] == row["object"]
    assert single["rows"][0]["cells"][:4] == row["cells"][:4], "its age may have grown"


@pytest.mark.parametrize(
    ("include", "kind"), [("Object", "Pod"), ("Metadata", "PartialObjectMetadata"), ("None", None)]
)
async def test_rows_carry_as_much_of_the_object_as_is_asked_for(api: InProcess, include: str, kind: str | None) -> None:
    await api.made(PODS, pod())
    row = (await api.get(f"{PODS}?includeObject={include}", accept=TABLE)).json["rows"][0]
    assert (row["object"] or {}).get("kind") == kind


async def test_the_table_of_what_is_only_tried_out_has_no_revision(api: InProcess) -> None:
    tried = (await api.post(f"{PODS}?dryRun=All", pod(), accept=TABLE)).json
    assert (tried["kind"], tried["metadata"]) == ("Table", {})


async def test_rows_with_what_no_row_can_have_are_refused(api: InProcess) -> None:
    reply = await api.get(f"{PODS}?includeObject=Foo", accept=TABLE)
    assert (reply.status, "must be 'Metadata', 'Object', 'None', or empty" in reply.message) == (400, True)


async def test_metadata_alone_can_be_had_of_one_and_of_many(api: InProcess) -> None:
    made = await api.made(PODS, pod())
    obj = (await api.get(f"{PODS}/web", accept=METADATA)).json
    assert (obj["kind"], obj["metadata"], obj.keys()) == (
        "PartialObjectMetadata",
        made["metadata"],
        {"kind", "apiVersion", "metadata"},
    )
    many = (await api.get(PODS, accept=METADATA_LIST)).json
    assert (many["kind"], many["items"]) == ("PartialObjectMetadataList", [obj])
    assert (await api.get(PODS, accept=METADATA)).status == 406
    assert (await api.get(f"{PODS}/web", accept=METADATA_LIST)).status == 406


async def test_a_client_takes_the_first_form_that_there_is(api: InProcess) -> None:
    await api.made(PODS, pod())
    accept = "application/json;as=Table;v=v9;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io"
    assert (await api.get(PODS, accept=accept)).json["apiVersion"] == "meta.k8s.io/v1beta1"
    assert (await api.get(PODS, accept="text/html")).status == 406


async def test_yaml_goes_in_and_out(api: InProcess) -> None:
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\ndata:\n  a: 'on'\n"
    reply = await api.call("POST", CONFIG_MAPS, body, "application/yaml", accept="application/yaml")
    assert (reply.status, reply.header("content-type")) == (201, ["application/yaml"])
    assert yaml.safe_load(reply.body)["data"] == {"a": "on"}
    listed = await api.get(CONFIG_MAPS, accept="application/yaml")
    assert "settings" in [item["metadata"]["name"] for item in yaml.safe_load(listed.body)["items"]]


@pytest.mark.parametrize("count", [5, 60], ids=["at once", "in a thread"])
async def test_large_answers_are_compressed_for_those_who_accept_it(alone: InProcess, count: int) -> None:
    await fill(alone, count, size=30_000)
    plain = await alone.get(CONFIG_MAPS)
    packed = await alone.get(CONFIG_MAPS, accept_encoding="gzip, deflate")
    assert packed.header("content-encoding") == ["gzip"]
    assert gzip.decompress(packed.body) == plain.body
    assert plain.header("content-encoding") == []
    small = await alone.get(f"{CONFIG_MAPS}/cm-0000", accept_encoding="gzip")
    assert small.header("content-encoding") == []


async def test_a_large_answer_is_compressed_beside_the_loop_in_any_number_of_pieces(
    alone: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: set[threading.Thread] = set()

    def watched(piece: bytes) -> CompressedPiece:
        if len(piece) > 1000:
            threads.add(threading.current_thread())
        return compress_piece(piece)

    monkeypatch.setattr(compression, "compress_piece", watched)
    for number in range(5):
        note = {"large": "x" * 200_000}
        await alone.made(CONFIG_MAPS, {"metadata": {"name": f"cm-{number}", "annotations": note}})
    accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    plain = await alone.get(CONFIG_MAPS, accept=accept)
    packed = await alone.get(CONFIG_MAPS, accept=accept, accept_encoding="gzip")
    assert gzip.decompress(packed.body) == plain.body
    assert threads
    assert threading.current_thread() not in threads


async def test_answers_are_indented_for_people(api: InProcess) -> None:
    compact = await api.get("/api/v1/namespaces/default")
    assert b"\n  " not in compact.body
    for reply in (
        await api.get("/api/v1/namespaces/default?pretty=true"),
        await api.get("/api/v1/namespaces/default?pretty=1"),
        await api.get("/api/v1/namespaces/default", user_agent="curl/8.0"),
    ):
        assert b"\n  " in reply.body
        assert reply.json == compact.json
    for query in ("pretty=false", "pretty=0", "pretty=junk"):
        assert (await api.get(f"/api/v1/namespaces/default?{query}", user_agent="curl/8.0")).body == compact.body
    refused = await api.get("/api/v1/namespaces/nowhere?pretty=true")
    assert b"\n  " in refused.body


async def test_an_empty_table_has_null_where_kubernetes_has_no_list(api: InProcess) -> None:
    assert (await api.get(PODS, accept=METADATA_LIST)).json["items"] is None
    assert (await api.get(PODS)).json["items"] == []
    assert (await api.get(PODS, accept=TABLE)).json["rows"] == []
    limit_ranges = "/api/v1/namespaces/default/limitranges"
    assert (await api.get(limit_ranges, accept=TABLE)).json["rows"] is None, "they have no columns"
    await api.made(limit_ranges, {"metadata": {"name": "limits"}, "spec": {"limits": []}})
    assert len((await api.get(limit_ranges, accept=TABLE)).json["rows"]) == 1
