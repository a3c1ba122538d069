"""Descriptions of roles and their bindings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pinnace.cli.describe.parts import Description, describe_labels, heading
from pinnace.cli.kubectl.formats import format_value
from pinnace.model.objects import Object


class _Allowed(NamedTuple):
    """The target of a rule's verbs: one resource, one object of it, or one URL."""

    group: str = ""
    resource: str = ""
    name: str | None = None
    url: str | None = None


def role(page: Description, obj: Object) -> None:
    """Describe a role by resource: rules with several resources are split, and the verbs of each are merged."""
    verbs: dict[_Allowed, list[str]] = {}
    of_urls: list[tuple[_Allowed, list[str]]] = []
    for rule in obj.get("rules") or ():
        for allowed, verb in _single(rule):
            if allowed.url is not None:
                of_urls.append((allowed, [verb]))  # kubectl shows a line for each verb of a URL.
            elif verb not in verbs.setdefault(allowed, []):
                verbs[allowed].append(verb)
    heading(page, obj, namespaced=False)
    describe_labels(page, obj)
    page.line("PolicyRule:")
    rows = [
        (_resource(allowed), _bracket(allowed.url), _bracket(allowed.name), format_value(several))
        for allowed, several in sorted([*of_urls, *verbs.items()], key=_order)
    ]
    page.table(("Resources", "Non-Resource URLs", "Resource Names", "Verbs"), rows)


def binding(page: Description, obj: Object) -> None:
    heading(page, obj, namespaced=False)
    describe_labels(page, obj)
    page.line("Role:")
    page.pairs(("Kind", obj["roleRef"]["kind"]), ("Name", obj["roleRef"]["name"]), level=1)
    page.line("Subjects:")
    fields = ("kind", "name", "namespace")
    rows = [[one.get(field, "") for field in fields] for one in obj.get("subjects") or ()]
    page.table(map(str.title, fields), rows)


def _single(rule: Object) -> Iterator[tuple[_Allowed, str]]:
    """Yield the parts of a rule: one verb on one resource, name or URL each."""
    verbs = rule.get("verbs") or ()
    for group in rule.get("apiGroups") or ():
        for resource in rule.get("resources") or ():
            for verb in verbs:
                for name in rule.get("resourceNames") or (None,):
                    yield _Allowed(group, resource, name), verb
    for url in rule.get("nonResourceURLs") or ():
        for verb in verbs:
            yield _Allowed(url=url), verb


def _resource(allowed: _Allowed) -> str:
    resource, slash, subresource = allowed.resource.partition("/")
    return resource + (f".{allowed.group}" if allowed.group else "") + slash + subresource


def _bracket(value: str | None) -> str:
    return "[]" if value is None else f"[{value}]"


def _order(row: tuple[_Allowed, list[str]]) -> str:
    """Return the sort key: by verbs first, compared as text, as kubectl does."""
    allowed, verbs = row
    of_url = allowed.url is not None
    return (
        f"Verbs:{format_value(verbs)},APIGroups:{'[]' if of_url else _bracket(allowed.group)},"
        f"Resources:{'[]' if of_url else _bracket(allowed.resource)},ResourceNames:{_bracket(allowed.name)},"
        f"NonResourceURLs:{_bracket(allowed.url)},"
    )
