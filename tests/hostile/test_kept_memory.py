"""Requests of many kinds leave nothing large behind: no cache keeps long texts, and no watch its last event."""

from __future__ import annotations

import asyncio
import functools
import gc
from collections.abc import AsyncIterator, Callable, Iterator
from types import AsyncGeneratorType
from typing import Any

import pytest
from tests.server.in_process import APPLY, CONFIG_MAPS, PODS, InProcess, config_map, control_plane

from pinnace.client.following import Event
from pinnace.cluster.in_process import in_process_client
from pinnace.model.objects import Key, ObjectEvent
from pinnace.process.tasks import Tasks
from pinnace.reconcile.informer import Informers
from pinnace.serving.cache import fanout
from pinnace.serving.cache.watch_cache import LARGE_EVENT, CacheEvent

LONG = 20_000
LONGEST_KEPT = 4096
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CRON_JOBS = "/apis/batch/v1/namespaces/default/cronjobs"
QUOTAS = "/api/v1/namespaces/default/resourcequotas"

Call = tuple[str, str, Any, str]


@pytest.fixture
async def api() -> AsyncIterator[InProcess]:
    async with control_plane() as plane:
        yield plane


def create(target: str, metadata: dict[str, Any] | None = None, **fields: Any) -> Call:
    body = {"metadata": {"name": "a", **(metadata or {})}, **fields}
    return "POST", f"{target}?dryRun=All", body, "application/json"


def get(query: str) -> Call:
    return "GET", f"{CONFIG_MAPS}?{query}", None, "application/json"


def pod(**fields: Any) -> Call:
    return create(PODS, spec={"containers": [{"name": "c", "image": "i", **fields}]})


def cron_job(**fields: Any) -> Call:
    job = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}}}}
    return create(CRON_JOBS, spec={"schedule": "* * * * *", "jobTemplate": job, **fields})


def definition(properties: dict[str, Any], **version: Any) -> Call:
    schema = {"openAPIV3Schema": {"type": "object", "properties": properties}}
    versions = [{"name": "v1", "served": True, "storage": True, "schema": schema, **version}]
    names = {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": versions}
    return create(DEFINITIONS, {"name": "things.example.com"}, spec=spec)


def managed(**entry: str) -> dict[str, Any]:
    return {"managedFields": [{"operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", **entry}]}


PLACES: dict[str, Callable[[str], Call]] = {
    "name": lambda text: create(CONFIG_MAPS, {"name": text}),
    "generate name": lambda text: create(CONFIG_MAPS, {"generateName": text}),
    "label": lambda text: create(CONFIG_MAPS, {"labels": {text: text}}),
    "annotation": lambda text: create(CONFIG_MAPS, {"annotations": {text: ""}}),
    "finalizer": lambda text: create(CONFIG_MAPS, {"finalizers": [f"example.com/{text}"]}),
    "data key": lambda text: create(CONFIG_MAPS, data={text: ""}),
    "manager": lambda text: create(CONFIG_MAPS, managed(manager=text)),
    "quantity": lambda text: create(QUOTAS, spec={"hard": {"cpu": "1" * len(text) + text[-3:].strip("x")}}),
    "resource name": lambda text: create(QUOTAS, spec={"hard": {f"example.com/{text}": "1"}}),
    "image": lambda text: pod(image=text),
    "container name": lambda text: pod(name=text),
    "port name": lambda text: pod(ports=[{"containerPort": 1, "name": text}]),
    "requests": lambda text: pod(resources={"requests": {"cpu": f"1{text[-3:]}"}, "limits": {"cpu": "9" * len(text)}}),
    "schedule": lambda text: cron_job(schedule="* * * * " + ",".join(["1"] * (len(text) // 2)) + f",{text[-1]}"),
    "time zone": lambda text: cron_job(timeZone=text),
    "pattern": lambda text: definition({"p": {"type": "string", "pattern": text[: len(text) // 4]}}),
    "column": lambda text: definition(
        {}, additionalPrinterColumns=[{"name": "n", "type": "string", "jsonPath": f".{text}"}]
    ),
    "namespace": lambda text: ("GET", f"/api/v1/namespaces/{text}/configmaps", None, "application/json"),
    "path": lambda text: ("GET", f"/{text}", None, "application/json"),
    "label selector": lambda text: get(f"labelSelector={text}"),
    "field selector": lambda text: get(f"fieldSelector=metadata.name={text}"),
    "key of a map list": lambda text: (
        "PATCH",
        f"{PODS}/a?dryRun=All&fieldManager=m",
        {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": text, "image": "i"}]}},
        APPLY,
    ),
}


@pytest.mark.parametrize("place", PLACES)
async def test_no_cache_keeps_a_long_text(api: InProcess, place: str) -> None:
    before = cached_texts()
    for number in range(3):
        method, target, body, content_type = PLACES[place]("x" * LONG + f"{number:03}")
        reply = await api.call(method, target, body, content_type)
        assert reply.status < 500, reply.body[:500]
    assert cached_texts() - before == set()


def cached_texts() -> set[tuple[str, str]]:
    """Return the long texts in the keys of caches, each with the name of the function whose results are cached."""
    gc.unfreeze()  # The suite freezes the objects of its start.
    try:
        caches = [obj for obj in gc.get_objects() if isinstance(obj, functools._lru_cache_wrapper)]
    finally:
        gc.freeze()
    return {(cache.__qualname__, text) for cache in caches for text in long_keys(cache)}


def long_keys(cache: object) -> Iterator[str]:
    for known in gc.get_referents(cache):
        if isinstance(known, dict):
            for key in known:
                for part in (key, *key) if isinstance(key, tuple) else (key,):
                    if isinstance(part, str) and len(part) > LONGEST_KEPT:
                        yield part


@pytest.mark.parametrize("metadata_only", [False, True], ids=["objects", "metadata"])
async def test_a_watch_within_the_process_does_not_keep_its_last_event(api: InProcess, metadata_only: bool) -> None:
    informers = Informers(in_process_client(api.plane.local()))
    informer = informers.get("v1/ConfigMap", metadata_only=metadata_only)
    async with Tasks() as tasks:
        tasks.start(informers.run())
        await api.made(CONFIG_MAPS, config_map("large", annotations={"a": "y" * LONG}))
        async with asyncio.timeout(60):
            while Key("default", "large") not in informer.cache:
                await asyncio.sleep(0)
            await api.delete(f"{CONFIG_MAPS}/large")
            while Key("default", "large") in informer.cache:
                await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert list(large_locals()) == []


async def test_the_frames_of_a_large_event_are_dropped(api: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fanout, "LARGE_FRAME_SECONDS", 0.05)
    dropped = 0

    def drop(event: CacheEvent) -> None:
        nonlocal dropped
        assert any(large_frames())
        dropped += 1
        drop_frames(event)

    drop_frames = CacheEvent.drop_frames
    monkeypatch.setattr(CacheEvent, "drop_frames", drop)
    informers = Informers(in_process_client(api.plane.local()))
    informers.get("v1/ConfigMap", metadata_only=True)
    async with Tasks() as tasks:
        tasks.start(informers.run())
        await api.made(CONFIG_MAPS, config_map("large", finalizers=[f"example.com/f{n}" for n in range(20_000)]))
        async with asyncio.timeout(60):
            while not dropped or any(large_frames()):
                await asyncio.sleep(0.01)


def large_frames() -> Iterator[int]:
    """Yield the sizes of the frames that events keep, if they are large."""
    for event in gc.get_objects():
        if isinstance(event, CacheEvent):
            yield from (size for size in map(len, (event.frames or {}).values()) if size >= LARGE_EVENT)


def large_locals() -> Iterator[tuple[str, str]]:
    """Yield the generators and variables that hold large bytes."""
    for generator in gc.get_objects():
        if isinstance(generator, AsyncGeneratorType) and generator.ag_frame is not None:
            for name, value in generator.ag_frame.f_locals.items():
                if isinstance(body := body_of(value), bytes) and len(body) >= LONG:
                    yield generator.__qualname__, name


def body_of(value: object) -> object:
    match value:
        case Event():
            return value.snapshot.body
        case ObjectEvent():
            return value.body
    return value
