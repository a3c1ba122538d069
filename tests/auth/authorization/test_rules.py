"""One rule against one action, and rules against rules, as Kubernetes matches them."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.auth.objects_in_memory import Object, rule

from pinnace.auth.authorization.coverage import MOST_MISSING, TooManyRules, find_missing, missing_from
from pinnace.auth.authorization.rules import Rule
from pinnace.model.authorization import Action

LIST_PODS = Action("list", resource="pods", namespace="default")
GET_WEB = Action("get", resource="pods", namespace="default", name="web")
SCALE = Action("update", group="apps", resource="deployments", subresource="scale", name="web")


@pytest.mark.parametrize(
    ("given", "action", "allowed"),
    [
        pytest.param(rule("list", "pods"), LIST_PODS, True, id="exactly"),
        pytest.param(rule("get", "pods"), LIST_PODS, False, id="another verb"),
        pytest.param(rule("*", "pods"), LIST_PODS, True, id="every verb"),
        pytest.param(rule("list", "*"), LIST_PODS, True, id="every resource"),
        pytest.param(rule("list", "pods", groups="apps"), LIST_PODS, False, id="another group"),
        pytest.param(rule("list", "pods", groups="*"), LIST_PODS, True, id="every group"),
        pytest.param(rule("get", "pods", names="web db"), GET_WEB, True, id="by name"),
        pytest.param(rule("get", "pods", names="db"), GET_WEB, False, id="another name"),
        pytest.param(rule("list", "pods", names="web"), LIST_PODS, False, id="a name, but a list has none"),
        pytest.param(rule("update", "deployments", groups="apps"), SCALE, False, id="not its subresources"),
        pytest.param(rule("update", "deployments/scale", groups="apps"), SCALE, True, id="the subresource"),
        pytest.param(rule("update", "*/scale", groups="apps"), SCALE, True, id="the subresource of everything"),
        pytest.param(rule("update", "deployments/*", groups="apps"), SCALE, False, id="no star behind a slash"),
        pytest.param(rule("update", "*", groups="apps"), SCALE, True, id="everything has subresources, too"),
        pytest.param(rule("get", urls="/metrics"), Action("get", path="/metrics"), True, id="a path"),
        pytest.param(rule("get", urls="/metrics"), Action("get", path="/metrics/slis"), False, id="a longer path"),
        pytest.param(rule("get", urls="/api/*"), Action("get", path="/api/v1"), True, id="a path with a star"),
        pytest.param(rule("get", urls="/api/*"), Action("get", path="/api"), False, id="the star needs its slash"),
        pytest.param(rule("get", urls="*"), Action("get", path="/anything"), True, id="every path"),
        pytest.param(rule("*", "*", groups="*"), Action("get", path="/metrics"), False, id="resources are not paths"),
        pytest.param(rule("*", urls="*"), LIST_PODS, False, id="paths are not resources"),
    ],
)
def test_a_rule_allows_what_it_says(given: Object, action: Action, allowed: bool) -> None:
    assert Rule.of(given).allows(action) is allowed


@pytest.mark.parametrize(
    ("held", "wanted", "missing"),
    [
        pytest.param([rule("get list", "pods")], [rule("get", "pods")], [], id="more than wanted"),
        pytest.param([rule("get", "pods"), rule("list", "pods")], [rule("get list", "pods")], [], id="in two rules"),
        pytest.param(
            [rule("get", "pods")],
            [rule("get list watch", "pods")],
            ['{APIGroups:[""], Resources:["pods"], Verbs:["list" "watch"]}'],
            id="verbs are listed together",
        ),
        pytest.param(
            [rule("get", "pods", names="web")],
            [rule("get", "pods")],
            ['{APIGroups:[""], Resources:["pods"], Verbs:["get"]}'],
            id="one name is not all",
        ),
        pytest.param([rule("get", "pods")], [rule("get", "pods", names="web")], [], id="all names cover one"),
        pytest.param([rule("*", "*", groups="*")], [rule("create", "pods/exec")], [], id="everything covers all"),
        pytest.param([rule("get", "*/scale", groups="*")], [rule("get", "jobs/scale")], [], id="every scale"),
        pytest.param(
            [rule("get list", "pods")],
            [rule("*", "pods")],
            ['{APIGroups:[""], Resources:["pods"], Verbs:["*"]}'],
            id="all known verbs are not every verb",
        ),
        pytest.param([rule("get", urls="/api/*")], [rule("get", urls="/api/v1 /api/*")], [], id="paths"),
        pytest.param(
            [rule("*", "*", groups="*")],
            [rule("get list", urls="/x /y")],
            [f'{{NonResourceURLs:["{url}"], Verbs:["{verb}"]}}' for url in ("/x", "/y") for verb in ("get", "list")],
            id="each path has its own line",
        ),
        pytest.param(
            [],
            [rule("get list", "pods secrets", groups="core apps", names="n")],
            [
                f'{{APIGroups:["{group}"], Resources:["{plural}"], ResourceNames:["n"], Verbs:["get" "list"]}}'
                for group in ("", "apps")
                for plural in ("pods", "secrets")
            ],
            id="each resource of each group",
        ),
    ],
)
def test_permissions_that_are_not_held_are_reported_in_kubernetes_words(
    held: list[Object], wanted: list[Object], missing: list[str]
) -> None:
    result = missing_from([Rule.of(rule) for rule in held], [Rule.of(rule) for rule in wanted])
    assert [str(rule) for rule in result] == missing


def some(*values: str, least: int = 0) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(values), min_size=least, max_size=3).map(tuple)


VERBS, PATHS = some("get", "list", "*", least=1), some("/a", "/a/b", "/a/*", "*", least=1)
PLACES = st.tuples(some("", "apps", "*"), some("pods", "pods/log", "*/log", "*"), some("a", "b"))
RULES = st.lists(
    st.one_of(
        st.builds(lambda verbs, places: Rule(verbs, *places), VERBS, PLACES),
        st.builds(lambda verbs, paths: Rule(verbs, urls=paths), VERBS, PATHS),
    ),
    max_size=4,
)


@given(RULES, RULES)
def test_the_parts_that_are_not_held_are_those_that_no_rule_allows(held: list[Rule], wanted: list[Rule]) -> None:
    missing: dict[tuple[str, ...], list[str]] = {}
    for part in wanted:
        for place in places_of(part):
            for verb in part.verbs:
                box = ((verb,), *((value,) for value in place))
                known = missing.setdefault(place, [])
                if not any(all(own.part_of(box)) for own in held) and verb not in known:
                    known.append(verb)
    expected = [
        Rule(tuple(verbs), (place[0],), (place[1],), tuple(filter(None, place[2:])))
        for place, verbs in missing.items()
        if len(place) > 1 and verbs
    ]
    expected += [Rule((verb,), urls=place) for place, verbs in missing.items() if len(place) == 1 for verb in verbs]
    assert missing_from(held, wanted) == sorted(expected, key=str)


def places_of(rule: Rule) -> list[tuple[str, ...]]:
    return [*product(rule.urls), *product(rule.groups, rule.resources, rule.names or ("",))]


BILLION = Rule(
    tuple(f"verb{n}" for n in range(200)),
    tuple(f"g{n}" for n in range(200)),
    tuple(f"r{n}" for n in range(200)),
    tuple(f"n{n}" for n in range(200)),
)


async def test_a_billion_parts_are_compared_at_once() -> None:
    every = ("*",)
    held = [Rule(BILLION.verbs[:99], every, every), Rule(BILLION.verbs[99:], every, every)]
    assert await find_missing(held, [BILLION]) == []
    assert len(await find_missing(held[:1], [BILLION])) == MOST_MISSING
    assert len(await find_missing([], [Rule(BILLION.verbs, urls=BILLION.names)])) == MOST_MISSING


async def test_rules_that_take_too_long_to_compare_are_refused() -> None:
    held = [Rule(("get",), ("",), ("pods",), (f"n{n}",)) for n in range(4_000)]
    with pytest.raises(TooManyRules):
        await find_missing(held, held[::-1])
