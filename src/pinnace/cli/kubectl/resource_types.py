"""Resolve `pods`, `deploy/web` or `websites.v1.example.com` on a command line by the server's discovery."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import orjson

from pinnace.cli.progress import progress
from pinnace.cli.session import CommandError, PlainCommandError
from pinnace.client.client import Client
from pinnace.client.mapping import ServedKind
from pinnace.model.objects import Kind, Object, kind_of
from pinnace.schema.golang.text import quote

_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


@dataclass(frozen=True, slots=True)
class ResourceArgument:
    """The objects that an argument names: all of a kind, or one of them."""

    served: ServedKind
    name: str = ""


class ResourceTypes:
    """All kinds that a server serves, preferred versions first."""

    def __init__(self, served: Sequence[ServedKind]) -> None:
        self._served = served

    @classmethod
    async def load(cls, client: Client) -> ResourceTypes:
        """Read the server's discovery, with two requests if it has aggregated discovery."""
        served: list[ServedKind] = []
        for root in ("/api", "/apis"):
            with progress("waiting for the server's discovery"):
                answer = orjson.loads(await client.read(root, accept=_AGGREGATED))
            if answer.get("kind") != "APIGroupDiscoveryList":
                return cls(await client.kinds.all())
            served += _discover(answer)
        return cls(served)

    def find(self, name: str) -> ServedKind:
        """Return the kind of a plural, singular, short name or kind; .GROUP or .VERSION.GROUP may follow."""
        for served in self._match(name):
            return served
        raise CommandError(f"the server doesn't have a resource type {quote(name.partition('.')[0])}")

    def find_kind(self, kind: Kind) -> ServedKind | None:
        return next((served for served in self._served if served.kind == kind), None)

    def all_listable(self, *, namespaced: bool) -> list[ServedKind]:
        """Return each kind that can be listed, once; with `namespaced` those that a namespace has."""
        by_resource: dict[tuple[str, str], ServedKind] = {}
        for served in self._served:
            if "list" in served.verbs and (served.namespaced or not namespaced):
                by_resource.setdefault((served.kind.group, served.plural), served)
        return list(by_resource.values())

    def knows(self, obj: Object) -> bool:
        """Return whether the kind of an object is served."""
        return self.find_kind(kind_of(obj)) is not None

    def find_all(self, name: str) -> list[ServedKind]:
        """Return the kinds of a category such as `all`, or the one that the name stands for."""
        by_resource: dict[tuple[str, str], ServedKind] = {}
        if not any(self._match(name)):
            for served in self._served:
                if name in served.categories:
                    by_resource.setdefault((served.kind.group, served.plural), served)
        return list(by_resource.values()) or [self.find(name)]

    def _match(self, name: str) -> Iterable[ServedKind]:
        word, _, rest = name.partition(".")
        version, _, group = rest.partition(".")
        lowered = word.lower()
        for served in self._served:
            if not served.verbs:
                continue
            kind = served.kind
            if rest and rest != kind.group and (version, group) != (kind.version, kind.group):
                continue
            if lowered in (served.plural, served.singular, kind.name.lower(), *served.short_names):
                yield served


def parse_resources(
    types: ResourceTypes, words: Sequence[str], *, names_needed: bool = False
) -> list[ResourceArgument]:
    """Parse the arguments of a command: TYPE, TYPE,TYPE, TYPE NAME NAME, or TYPE/NAME TYPE/NAME."""
    if not words:
        raise PlainCommandError(
            "You must specify the type of resource to get. pinnace get --help shows how, and which types there are."
        )
    if any("/" in word for word in words):
        return [_parse_name(types, word, alone=len(words) == 1) for word in words]
    kinds = [served for word in words[0].split(",") for served in types.find_all(word)]
    if len(words) == 1:
        if names_needed:
            raise CommandError("resource(s) were provided, but no name was specified")
        return [ResourceArgument(served) for served in dict.fromkeys(kinds)]
    return [ResourceArgument(served, name) for served in kinds for name in words[1:]]


def _parse_name(types: ResourceTypes, word: str, *, alone: bool) -> ResourceArgument:
    kind, slash, name = word.partition("/")
    if not slash:
        raise CommandError(
            "there is no need to specify a resource type as a separate argument when passing arguments in "
            "resource/name form (e.g. 'pinnace get resource/<resource_name>' instead of 'pinnace get resource "
            "resource/<resource_name>'"
        )
    if "/" in name:
        raise CommandError("arguments in resource/name form may not have more than one slash")
    if not kind or not name:
        raise CommandError("arguments in resource/name form must have a single resource and name")
    return ResourceArgument(types.find(kind), name)


def qualified(served: ServedKind) -> str:
    """Return kubectl's name for the kind of a changed object: pod, deployment.apps."""
    return _with_group(served.singular or served.kind.name.lower(), served.kind.group)


def of_object(kind: Kind) -> str:
    return _with_group(kind.name.lower(), kind.group)


def _with_group(word: str, group: str) -> str:
    return f"{word}.{group}" if group else word


def _discover(answer: Object) -> Iterable[ServedKind]:
    for group in answer.get("items") or ():
        group_name = (group.get("metadata") or {}).get("name", "")
        for version in group.get("versions") or ():
            for row in version.get("resources") or ():
                response = row.get("responseKind") or {}
                yield ServedKind(
                    kind=Kind(
                        response.get("group") or group_name,
                        response.get("version") or version["version"],
                        response.get("kind", ""),
                    ),
                    plural=row["resource"],
                    namespaced=row.get("scope") == "Namespaced",
                    singular=row.get("singularResource") or "",
                    short_names=tuple(row.get("shortNames") or ()),
                    categories=tuple(row.get("categories") or ()),
                    verbs=tuple(row.get("verbs") or ()),
                    subresources=tuple(sub["subresource"] for sub in row.get("subresources") or ()),
                )
