"""Selects the objects of a list or watch: by label selector, field selector or name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from pinnace.model import errors, selectors
from pinnace.model.resources import Resource
from pinnace.model.shards import ShardSelector
from pinnace.process.eager_coroutines import NowOrLater
from pinnace.serving.cache.served_versions import needs_preparation, prepare, selectable_values
from pinnace.serving.cache.watch_cache import CachedObject, WatchCache
from pinnace.serving.long_work import run_beside
from pinnace.serving.read.shard_selectors import Matches, in_shards, parse_shard_selector
from pinnace.serving.request.call import Call

LONG_QUERY = 8 << 10
"""Parsing so many characters of selectors takes some milliseconds."""


@dataclass(frozen=True, slots=True)
class ListSelection:
    """`matches` is None if every object is selected; `name` narrows the search before `matches` is called."""

    namespace: str
    name: str
    matches: Matches | None
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that every selected object has, for a search by index; `matches` is called all the same."""
    prepare: Callable[[Iterable[CachedObject]], NowOrLater[None]] | None = None
    """Call it on objects, and await it, before `matches`: a webhook converts them to read their fields."""
    shards: ShardSelector | None = None
    """`matches` is False for all objects outside of these shards."""

    async def prepare_all(self, cache: WatchCache) -> None:
        """Prepare all objects of the cache, so that `matches` can be called until the next await."""
        while self.prepare is not None and (waiting := self.prepare(cache.entries.values())) is not None:
            await waiting


def has_long_query(call: Call) -> bool:
    """Whether the selectors of a call take long to parse: then await `parse_beside` first."""
    return len(call.request.raw_query) > LONG_QUERY


async def parse_beside(call: Call) -> None:
    """Parse the selectors of a call in a thread. Raise BadRequest for a malformed selector."""
    call.selection = await run_beside(call.user.name, selection_of, call)


def selection_of(call: Call) -> ListSelection:
    """Return what the call's selectors choose. Raise an ApiError for a malformed selector."""
    if isinstance(call.selection, ListSelection):
        return call.selection
    chosen = _by_labels_and_fields(call)
    if not call.takes_shards or not (text := call.text("shardSelector")):
        return chosen
    shards = parse_shard_selector(text)
    return replace(chosen, matches=in_shards(shards, chosen.matches), shards=shards)


def _by_labels_and_fields(call: Call) -> ListSelection:
    label_text, field_text = call.text("labelSelector"), call.text("fieldSelector")
    selector = _label_selector(label_text) if label_text else None
    labels = _on_labels(selector.matches) if selector is not None else None
    equal = selector.equalities() if selector is not None else {}
    namespace, name = call.namespace, call.name
    fields, preparing = None, None
    if field_text:
        chosen = _field_selector(field_text, call.resource)
        names = [
            requirement.value
            for requirement in chosen.requirements
            if requirement.field == "metadata.name" and requirement.operator == "="
        ]
        if name and names[:1] != [name]:
            raise errors.BadRequest("fieldSelector metadata.name doesn't match requested name")
        name = names[0] if names else ""
        has_only_name = bool(names) and len(chosen.requirements) == 1
        fields = _match_name(name) if has_only_name else _field_test(chosen, call.resource)
        if needs_preparation(call.resource) and any(
            requirement.field in call.resource.selectable for requirement in chosen.requirements
        ):
            preparing = partial(prepare, resource=call.resource)
    elif name:
        fields = _match_name(name)
    if labels is None:
        return ListSelection(namespace, name, fields, prepare=preparing)
    if fields is None:
        return ListSelection(namespace, name, labels, equal)
    both_labels, both_fields = labels, fields

    def both(key: str, entry: CachedObject) -> bool:
        return both_labels(key, entry) and both_fields(key, entry)

    return ListSelection(namespace, name, both, equal, preparing)


def check_syntax(call: Call) -> None:
    """Raise BadRequest for a malformed selector, but not for an unknown field in it."""
    _label_selector(call.text("labelSelector"))
    _parse_fields(call.text("fieldSelector"))


def _label_selector(text: str) -> selectors.LabelSelector:
    try:
        return selectors.label_selector(text)
    except ValueError as error:
        raise errors.BadRequest(str(error)) from None


def _on_labels(matches: Callable[[Mapping[str, str]], bool]) -> Matches:
    return lambda key, entry: matches(entry.labels)


_NOT_SELECTABLE = {
    "jobs": 'field label "{}" not supported for Job',
    "resourceslices": "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: {}",
}


def _field_selector(text: str, resource: Resource) -> selectors.FieldSelector:
    selector = _parse_fields(text)
    for requirement in selector.requirements:
        field = requirement.field
        if field in ("metadata.name", "metadata.namespace") or field in resource.selectable:
            continue
        if resource.selectable or resource.custom is not None:
            raise errors.BadRequest(_NOT_SELECTABLE.get(resource.plural, "field label not supported: {}").format(field))
        raise errors.BadRequest(f'"{field}" is not a known field selector: only "metadata.name", "metadata.namespace"')
    return selector


def _parse_fields(text: str) -> selectors.FieldSelector:
    try:
        return selectors.field_selector(text)
    except ValueError as error:
        raise errors.BadRequest(str(error)) from None


def _field_test(selector: selectors.FieldSelector, resource: Resource) -> Matches:
    def matches(key: str, entry: CachedObject) -> bool:
        namespace, _, name = key.rpartition("/")

        def value_of(field: str) -> str:
            if field == "metadata.name":
                return name
            if field == "metadata.namespace":
                return namespace
            return selectable_values(entry, resource)[field]

        return selector.matches(value_of)

    return matches


def _match_name(name: str) -> Matches:
    return lambda key, entry: key.rpartition("/")[2] == name


def keys_named(cache: WatchCache, chosen: ListSelection) -> list[str]:
    """Return the keys that a name can mean: one, or one in each namespace."""
    if chosen.namespace:
        candidates = [f"{chosen.namespace}/{chosen.name}"]
    elif chosen.name in cache.entries:
        candidates = [chosen.name]
    else:
        ending = f"/{chosen.name}"
        candidates = [key for key in cache.keys_of() if key.endswith(ending)]
    return [key for key in candidates if key in cache.entries]
