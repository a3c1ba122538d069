"""Mistakes of an author are reported at their line, with the fix."""

from __future__ import annotations

from typing import Any

import pytest

from pinnace.kinds.catalog import ROWS
from pinnace.sdk import Column, Context, CustomResource, Field, Model, NotStructural, Operator, Rule
from pinnace.sdk.handlers.names import built_in_kinds


class Spec(Model):
    size: int = 1


class Thing(CustomResource[Spec, None], group="example.com", version="v1"):
    pass


def nothing(*given: Any) -> None:
    pass


def more(obj: Thing, ctx: Context, third: int) -> None:
    pass


def named(obj: Thing, *, ctx: Context) -> None:
    pass


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"short_name": ["th"]}, r"Thing: short_name= is no option of a kind; there are group, .*short_names"),
        ({"short_names": "th"}, r"Thing: short_names='th': write a list, \['th'\]"),
        ({"short_names": ["t h"]}, r"Thing: names.shortNames\[0\]: Invalid value"),
        ({"scope": "Namespace"}, r'Thing: scope=\'Namespace\': write "Namespaced" or "Cluster"'),
        ({"plural": "Things"}, r"Thing: names.plural: Invalid value"),
        ({"columns": ["spec.size"]}, r"simple json path starting with \."),
        ({"columns": [Column(name="Size", path=".spec.sise")]}, r"the column Size: there is no field \.spec\.sise"),
        ({"selectable": [".spec.sise"]}, r"Thing: selectableFields\[0\].jsonPath: .*does not refer to a valid field"),
        (
            {"rules": [Rule("self.spec.sise > 1")]},
            r"^Thing.x-kubernetes-validations\[0\].rule: .*undefined field 'sise'",
        ),
        ({"group": "things.k8s.io"}, r"protected groups must have approval"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_kind_that_no_server_would_take_fails_where_it_is_written(options: dict[str, Any], message: str) -> None:
    with pytest.raises(NotStructural, match=message):
        type("Thing", (CustomResource[Spec, None],), {}, **{"group": "example.com", "version": "v1", **options})


def test_a_rule_of_one_value_names_its_field() -> None:
    class Ruled(Model):
        sizes: list[Spec] = Field(default_factory=list)
        text: str = Field(json_schema_extra={"x-kubernetes-validations": [{"rule": "self > 1"}]})

    with pytest.raises(NotStructural, match=r"^Thing\.spec\.text\.x-kubernetes-validations\[0\]\.rule: "):
        type("Thing", (CustomResource[Ruled, None],), {}, group="example.com", version="v1")


def test_groups_of_kubernetes_are_accepted_for_external_kinds() -> None:
    options: dict[str, Any] = {"group": "things.k8s.io", "version": "v1", "external": True}
    kind: Any = type("Thing", (CustomResource[Spec, None],), {}, **options)
    operator = Operator("user", kinds=[kind])
    assert operator.crds() == []


@pytest.mark.parametrize("name", ["", "Foo", "a b", "9a", "a-", "a.b", "a" * 64])
def test_an_operator_has_a_name_that_kubernetes_takes(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be an operator's name: write small letters, digits and -"):
        Operator(name)


@pytest.mark.parametrize("decorator", ["reconcile", "on_delete", "on_change", "validate", "mutate", "index"])
def test_a_decorator_without_its_kind_says_so(decorator: str) -> None:
    with pytest.raises(TypeError, match=rf"write @operator.{decorator}\(Website\) above nothing"):
        getattr(Operator("things"), decorator)(nothing)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"kind": "Deployment"},
            r"operator.reconcile: 'Deployment' does not name a kind; write .*\"apps/v1/Deployment\"",
        ),
        ({"kind": 5}, r"5 does not name a kind"),
        ({"kind": Spec}, r"Spec is no class of a kind: it needs a group and a version"),
        ({"owns": "v1/Secret"}, r"owns is a list of kinds: write owns=\['v1/Secret'\]"),
        ({"owns": Thing}, r"owns is a list of kinds: write owns=\[Thing\]"),
        ({"owns": ["Secret"]}, r"operator.reconcile\(owns=...\): 'Secret' does not name a kind"),
        ({"watches": ["v1/Secret"]}, r"write watches=\{\"v1/Secret\": lambda"),
        ({"watches": {"v1/Secret": None}}, r"write watches=\{\"v1/Secret\": lambda"),
    ],
    ids=str,
)
def test_kinds_that_are_none_are_refused(options: dict[str, Any], message: str) -> None:
    kind = options.pop("kind", Thing)
    with pytest.raises((TypeError, ValueError), match=message):
        Operator("things").reconcile(kind, **options)


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        (more, r"@operator.reconcile calls more\(obj, ctx\); the function requires 3 arguments"),
        (named, r"@operator.reconcile calls named\(obj, ctx\), without ctx="),
        (Thing(spec=Spec()), r"@operator.reconcile stands above a function"),
    ],
    ids=["too many", "by name", "no function"],
)
def test_a_function_that_cannot_be_called_is_refused(handler: Any, message: str) -> None:
    operator = Operator("things")
    with pytest.raises(TypeError, match=message):
        operator.reconcile(Thing)(handler)
    assert operator.declarations.reconciles == []


@pytest.mark.parametrize(
    ("decorator", "options", "message"),
    [
        ("reconcile", {"own": []}, r"operator.reconcile\(own=...\): there is no such option; did you mean owns\?"),
        ("timer", {"seconds": 5, "worker": 1}, r"operator.timer\(worker=...\): .*; did you mean workers\?"),
        ("on_delete", {"colour": 1}, r"operator.on_delete\(colour=...\): .*; there are labels, fields, when, workers"),
    ],
)
def test_an_option_that_a_decorator_lacks_is_refused_with_the_nearest(
    decorator: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        getattr(Operator("things"), decorator)(Thing, **options)


def test_a_kind_with_one_class_is_refused_with_the_two_that_it_needs() -> None:
    with pytest.raises(TypeError, match=r"write CustomResource\[Spec, Status\], or CustomResource\[Spec, None\]"):
        CustomResource[Spec]  # type: ignore[misc]


@pytest.mark.parametrize("operations", ["CREATE", ["create"], ["CREATE", "PATCH"]], ids=str)
def test_webhooks_are_asked_about_the_operations_that_there_are(operations: Any) -> None:
    with pytest.raises(ValueError, match="write a list of CREATE, UPDATE, DELETE, CONNECT"):
        Operator("things").validate(Thing, operations=operations)


@pytest.mark.parametrize("new", [Thing, "v1/Secret"], ids=str)
def test_conversion_is_between_two_versions_of_one_kind(new: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"two versions of one kind|give CustomResource classes"):
        Operator("things").convert(Thing, new)


class Other(CustomResource[Spec, None], group="example.com", version="v2", kind="Thing", storage=False):
    pass


class Third(CustomResource[Spec, None], group="example.com", version="v3", kind="Thing", storage=False):
    pass


def test_every_version_is_made_of_every_other_by_some_steps() -> None:
    operator = Operator("things", kinds=[Thing, Other, Third])
    for old, new in ((Thing, Other), (Other, Third), (Third, Other)):
        operator.convert(old, new)(lambda obj: obj)
    message = r"^Thing: no function converts Other to Thing: write one under @operator.convert\(Other, Thing\)"
    with pytest.raises(NotStructural, match=message):
        operator.crds()
    operator.convert(Other, Thing)(lambda obj: obj)
    assert len(operator.crds()) == 1


def swapped(ctx: Context, obj: Thing) -> None:
    pass


def old_and_new(new: Thing | None, old: Thing | None) -> None:
    pass


def misspelt(obj: Thign, ctx: Context) -> None:  # type: ignore[name-defined]  # noqa: F821
    pass


def other_kind(obj: Another, ctx: Context) -> None:
    pass


class Another(CustomResource[Spec, None], group="example.com", version="v1"):
    pass


@pytest.mark.parametrize(
    ("decorate", "message"),
    [
        (lambda operator: operator.reconcile(Thing)(swapped), r"the parameter ctx of the function would get the"),
        (
            lambda operator: operator.on_change(Thing)(old_and_new),
            r"parameter new of the function would get the argument",
        ),
        (lambda operator: operator.reconcile(Thing)(misspelt), r"there is no Thign in .*; did you mean Thing\?"),
        (
            lambda operator: operator.timer(Thing, seconds=1)(other_kind),
            r"gives other_kind a Thing, but .* is a Another",
        ),
        (lambda operator: operator.daemon(Thing)(nothing), r"stands above an `async def` function"),
        (lambda operator: operator.source(Thing)(nothing), r"stands above an async generator"),
    ],
    ids=["swapped", "old and new", "misspelt class", "another kind", "blocking daemon", "no generator"],
)
def test_a_handler_with_wrong_parameters_is_refused_when_it_is_declared(decorate: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        decorate(Operator("wrong"))


@pytest.mark.parametrize(
    ("decorate", "message"),
    [
        (lambda operator: operator.reconcile(Thing, owns=["apps/v1/Deploymnt"]), r"did you mean Deployment\?"),
        (lambda operator: operator.on_change("v1/Podd"), r"v1 has no kind Podd; did you mean Pod\?"),
        (lambda operator: operator.on_field(Thing, "spec.sise"), r"Spec has no sise; did you mean size\?"),
        (lambda operator: operator.reconcile(Thing, workers=0)(nothing), r"workers=0: write 1 or more"),
        (lambda operator: operator.reconcile(Thing, retries=-1)(nothing), r"retries=-1: write 0 or more"),
    ],
    ids=["owned kind", "kind", "field", "workers", "retries"],
)
def test_a_wrong_name_or_number_is_refused_when_it_is_declared(decorate: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decorate(Operator("wrong"))


def test_the_built_in_kinds_that_are_known_are_those_of_the_server() -> None:
    for row in ROWS:
        assert row.name in built_in_kinds(row.group), row
