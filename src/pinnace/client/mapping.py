"""Map kinds to URLs by the server's discovery pages, which are read again when a kind is missing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from pinnace.client.exchange import Exchange, decode_object
from pinnace.model import errors
from pinnace.model.names import path_segment
from pinnace.model.objects import Kind, Object

KindName = Kind | str | tuple[str, str, str]
"""A Kind, its parts in order, or its usual spelling: "apps/v1/Deployment", "v1/Pod"."""

KindLike = KindName | type[Any]
"""A name, or a class: one of the SDK's custom resources, of the typed objects, or of lightkube.resources."""

Read = Callable[[str], Awaitable[bytes]]
"""GETs a page."""


class NoSuchKind(errors.NoSuchPath):
    """The server does not serve this kind, or not in this version."""

    def __init__(self, kind: Kind) -> None:
        super().__init__(
            f"the server has no {kind.name} in {kind.api_version}; if it is a custom kind, install its definition first"
        )
        self.kind = kind


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedKind:
    """The discovery entry of one kind."""

    kind: Kind
    plural: str
    namespaced: bool
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()

    def path(self, *, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the path of its collection, of the part in one namespace, or of one object."""
        group = f"/apis/{self.kind.group}" if self.kind.group else "/api"
        where = f"/namespaces/{quote(namespace, safe='')}" if namespace and self.namespaced else ""
        which = f"/{quote(name, safe='')}" if name else ""
        below = f"/{subresource}" if subresource else ""
        return f"{group}/{self.kind.version}{where}/{self.plural}{which}{below}"


def kind_from(name: KindLike) -> Kind:
    """Return the kind that a name or a class stands for. Raise TypeError or ValueError if there is none."""
    if isinstance(name, Kind):
        return name
    if isinstance(name, tuple):
        return Kind(*name)
    if isinstance(name, type):
        return _kind_of_class(name)
    if not isinstance(name, str):
        raise TypeError(f'{name!r} does not name a kind; write "apps/v1/Deployment", or a class')
    api_version, slash, kind = name.rpartition("/")
    if not slash or api_version.count("/") > 1 or not kind:
        raise ValueError(f'{name!r} does not name a kind; write group, version and kind, as in "apps/v1/Deployment"')
    return Kind.parse(api_version, kind)


def _kind_of_class(kind: type[Any]) -> Kind:
    built_in: Kind | None = getattr(kind, "built_in", None)
    if built_in is not None:
        return built_in
    declared = getattr(kind, "declared", None)  # A class of the SDK; those of lightkube have _api_info.
    if declared is not None:
        return Kind(*declared.kind)
    info = getattr(kind, "_api_info", None)
    if info is None:
        raise TypeError(
            f"{kind.__name__} is no class of a kind: it needs a group and a version, "
            'as in class Website(CustomResource[Spec, Status], group="example.com", version="v1")'
        )
    if info.action:
        raise TypeError(
            f"{kind.__name__} is a subresource of {info.parent.kind}: name that, and subresource={info.action!r}"
        )
    return Kind(*info.resource)


class KindMapping:
    """The kinds that the server serves, loaded one group version at a time when they are needed."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._known: dict[Kind, ServedKind] = {}
        self._loading: dict[tuple[str, str], asyncio.Lock] = {}

    async def find(self, name: KindLike) -> ServedKind:
        """Return the entry of a kind. Raise NoSuchKind; a missing kind is looked up again each time."""
        kind = kind_from(name)
        served = self._known.get(kind)
        if served is None:
            async with self._loading.setdefault((kind.group, kind.version), asyncio.Lock()):
                # Many ask for a page at once when controllers start: the first one loads it for all.
                served = self._known.get(kind) or (await self._load(kind.group, kind.version)).get(kind)
        if served is None:
            raise NoSuchKind(kind)
        return served

    def forget(self, kind: Kind) -> None:
        """Look the kind up again next time: its URL serves nothing."""
        self._known.pop(kind, None)

    async def all(self) -> list[ServedKind]:
        """Return every kind in every version, the preferred version of each group first.

        Groups whose server cannot be reached are left out.
        """
        versions = [("", version) for version in decode_object(await self._read("/api")).get("versions") or ()]
        for group in decode_object(await self._read("/apis")).get("groups") or ():
            preferred = (group.get("preferredVersion") or {}).get("version")
            served = [version["version"] for version in group.get("versions") or ()]
            served.sort(key=lambda version: version != preferred)
            versions += [(group["name"], version) for version in served]
        kinds: list[ServedKind] = []
        for group_name, version in versions:
            try:
                kinds += (await self._load(group_name, version)).values()
            except errors.ApiError:
                continue
        return kinds

    async def _load(self, group: str, version: str) -> dict[Kind, ServedKind]:
        page = f"/apis/{group}/{version}" if group else f"/api/{version}"
        try:
            answer = await self._read(page)
        except errors.NoSuchPath:
            return {}
        loaded = {served.kind: served for served in _kinds_on(group, version, answer)}
        self._known.update(loaded)
        return loaded


@lru_cache(maxsize=256)
def _kinds_on(group: str, version: str, page: bytes) -> tuple[ServedKind, ...]:
    """Return the kinds of a page. Clients of one server read the same pages."""
    return tuple(_served_kinds(group, version, resource_rows(decode_object(page))))


def resource_rows(answer: Any) -> list[Object]:
    """Return the rows of an APIResourceList that name a resource and its kind. An aggregated server may send others."""
    rows = answer.get("resources") if isinstance(answer, dict) else None
    return [row for row in rows if _is_row(row)] if isinstance(rows, list) else []


def _is_row(row: Any) -> bool:
    if not isinstance(row, dict) or not all(isinstance(row.get(name), str) for name in ("name", "kind")):
        return False
    texts = (row.get(name) for name in ("group", "version", "singularName", "storageVersionHash"))
    lists = (row.get(name) for name in ("verbs", "shortNames", "categories"))
    return all(isinstance(text, str | None) for text in texts) and all(_is_texts(values) for values in lists)


def _is_texts(value: Any) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(text, str) for text in value))


def _served_kinds(group: str, version: str, rows: Iterable[Object]) -> Iterable[ServedKind]:
    below: dict[str, list[str]] = {}
    for row in rows:
        plural, slash, subresource = row["name"].partition("/")
        if slash:
            below.setdefault(plural, []).append(subresource)
    for row in rows:
        plural = row["name"]
        if "/" in plural:
            continue
        yield ServedKind(
            kind=Kind(row.get("group") or group, row.get("version") or version, row["kind"]),
            plural=plural,
            namespaced=bool(row.get("namespaced")),
            singular=row.get("singularName") or "",
            short_names=tuple(row.get("shortNames") or ()),
            categories=tuple(row.get("categories") or ()),
            verbs=tuple(row.get("verbs") or ()),
            subresources=tuple(below.get(plural, ())),
        )


class Addressing:
    """The state that the verbs of a `Client` share."""

    namespace: str
    """The namespace of namespaced objects that do not name one."""
    kinds: KindMapping
    _exchange: Exchange

    def _path(self, served: ServedKind, name: str, namespace: str, subresource: str) -> str:
        """Return the path of one object. Raise NotFound for a name that no object can have.

        Names come from owner references and annotations, too, which any user writes: `a/proxy/b` would be another
        request, made with the permissions of the controller, and an empty name the whole collection.
        """
        namespace = namespace or self.namespace
        if not name or path_segment(name) or path_segment(namespace):
            raise errors.NotFound(group=served.kind.group, plural=served.plural, name=name)
        return served.path(namespace=namespace, name=name, subresource=subresource)

    @contextmanager
    def _forgetting_if_missing(self, served: ServedKind) -> Iterator[None]:
        """Forget the URL of a kind that is no longer served: its definition may come back under another."""
        try:
            yield
        except errors.NoSuchPath:
            self.kinds.forget(served.kind)
            raise
