"""Expressions that take long: others are served meanwhile, and the answer is the same."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.admission.test_expression_costs import ENDLESS, HUNDREDFOLD, LONG, NINE_TENTHS
from tests.server.in_process import InProcess, Object, config_map, control_plane

from pinnace.admission import expressions
from pinnace.admission.cel_executor import INLINE_BUDGET, CelExecutor
from pinnace.admission.expressions import Budget, Oracles
from pinnace.cluster.control_plane import SYSTEM
from pinnace.model.objects import Kind
from pinnace.model.resources import Resource
from pinnace.model.users import User, authenticated
from pinnace.model.write_review import Review
from pinnace.process.fair_threads import FairThreads
from pinnace.schema.cel.errors import ExceedsInlineBudget
from pinnace.schema.cel.library.authorizer import CelDecision, Oracle, Question
from pinnace.schema.shape import Schema
from pinnace.serving.long_work import run_beside

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
OUT_OF_BUDGET = "validation failed due to running out of cost budget, no further validation rules will be run"
BELOW_INLINE_BUDGET = HUNDREDFOLD.format("a", "a + 1 > 0")
"""Costs less than INLINE_BUDGET, and takes a fraction of INLINE_SECONDS."""
PARAMETERS = 500
MINUTES = 1_000_000_000
"""A limit on the cost of expressions that allows many minutes."""
SECONDS = 60
EVERY_CONFIG_MAP = {
    "resourceRules": [
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]},
    ]
}


@pytest.fixture
async def api() -> AsyncIterator[InProcess]:
    async with control_plane() as plane:
        yield plane


async def bound(
    api: InProcess, *validations: Object, name: str = "costly", actions: tuple[str, ...] = ("Deny",), **spec: object
) -> None:
    """A policy for every ConfigMap, put to use."""
    metadata = {"name": name}
    body = {"matchConstraints": EVERY_CONFIG_MAP, "validations": list(validations), **spec}
    kind = "ValidatingAdmissionPolicy"
    await api.made(f"{ADMISSION}/validatingadmissionpolicies", {"kind": kind, "metadata": metadata, "spec": body})
    binding = {"policyName": name, "validationActions": list(actions)}
    await api.made(f"{ADMISSION}/validatingadmissionpolicybindings", {"metadata": metadata, "spec": binding})


class Watched:
    """Where expressions are evaluated."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads: list[str] = []
        evaluate = ThreadPoolExecutor.submit

        def submit(pool: ThreadPoolExecutor, work: object, *arguments: object) -> object:
            self.threads.append("beside")
            return evaluate(pool, work, *arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(ThreadPoolExecutor, "submit", submit)


async def test_others_are_served_while_an_expression_takes_long(
    api: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(monkeypatch)
    await bound(api, {"expression": f"{LONG} && {LONG}"})
    for count in (1, 2):
        slow = asyncio.create_task(api.post(CONFIG_MAPS, config_map(f"slow-{count}")))
        served = 0
        while not slow.done():
            assert (await api.get("/api/v1/namespaces/default")).status == 200
            served += 1
            await asyncio.sleep(0)
        assert (await slow).status == 201
        assert served > 3
        assert len(watched.threads) == count


def of_namespace(name: str) -> Object:
    """The match conditions of a policy for the objects of one namespace."""
    return {"matchConditions": [{"name": "namespace", "expression": f"object.metadata.namespace == '{name}'"}]}


async def test_costly_expressions_of_one_tenant_let_those_of_others_pass(api: InProcess) -> None:
    for name in ("mallory", "alice"):
        await api.made("/api/v1/namespaces", {"metadata": {"name": name}})
    await bound(api, *[{"expression": NINE_TENTHS}] * 10, name="limit", **of_namespace("mallory"))
    await bound(api, {"expression": LONG}, name="usual", **of_namespace("alice"))
    mallory, alice = (
        InProcess(api.plane, authenticated(User(name, ("system:masters",)))) for name in ("mallory", "alice")
    )
    target = "/api/v1/namespaces/mallory/configmaps"
    hostile = [asyncio.create_task(mallory.post(target, config_map(f"hostile-{index}"))) for index in range(3)]
    await asyncio.sleep(0)  # They are begun.
    async with asyncio.timeout(SECONDS):
        reply = await alice.post("/api/v1/namespaces/alice/configmaps", config_map("usual"))
        assert reply.status == 201, reply.message
        assert not any(task.done() for task in hostile)
        for task in hostile:
            task.cancel()
        assert all(
            isinstance(ended, asyncio.CancelledError)
            for ended in await asyncio.gather(*hostile, return_exceptions=True)
        )
        # The work of one user is done in its order: this begins when that of the cancelled requests has stopped.
        await FairThreads.of_loop().run("mallory", int)


async def test_costly_expressions_stop_at_the_deadline_of_their_request(
    api: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expressions, "MOST_COST_OF_ONE", MINUTES)
    monkeypatch.setattr(Budget.__init__, "__kwdefaults__", {"limit": MINUTES, "inline_budget": None})
    await bound(api, {"expression": HUNDREDFOLD.format("d", ENDLESS)})
    async with asyncio.timeout(SECONDS):
        assert (await api.post(f"{CONFIG_MAPS}?timeout=1s", config_map("hostile"))).status == 504
        # The work of one user is done in its order: this begins when that of the request has stopped.
        await FairThreads.of_loop().run(SYSTEM.name, int)


async def test_others_are_served_while_a_cheap_expression_has_many_parameters(api: InProcess) -> None:
    for index in range(PARAMETERS):
        await api.made(CONFIG_MAPS, {"metadata": {"name": f"parameter-{index}", "labels": {"is": "parameter"}}})
    body = {
        "matchConstraints": EVERY_CONFIG_MAP,
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "validations": [{"expression": f"{BELOW_INLINE_BUDGET} && params.metadata.name != ''"}],
    }
    await api.made(f"{ADMISSION}/validatingadmissionpolicies", {"metadata": {"name": "many"}, "spec": body})
    reference = {"selector": {"matchLabels": {"is": "parameter"}}, "parameterNotFoundAction": "Deny"}
    binding = {"policyName": "many", "validationActions": ["Deny"], "paramRef": reference}
    await api.made(f"{ADMISSION}/validatingadmissionpolicybindings", {"metadata": {"name": "many"}, "spec": binding})
    write = asyncio.create_task(api.post(CONFIG_MAPS, config_map("checked")))
    served = 0
    while not write.done():
        assert (await api.get("/api/v1/namespaces/default")).status == 200
        served += 1
        await asyncio.sleep(0)
    assert (await write).status == 201
    assert served > 5


async def test_a_mutation_that_takes_long_is_made_as_well(api: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    expression = f'Object{{data: {{"found": {LONG} ? "yes" : "no"}}}}'
    mutation = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}
    spec = {
        "matchConstraints": EVERY_CONFIG_MAP,
        "matchConditions": [{"name": "long", "expression": LONG}],
        "mutations": [mutation],
        "reinvocationPolicy": "Never",
    }
    await api.made(f"{ADMISSION}/mutatingadmissionpolicies", {"metadata": {"name": "costly"}, "spec": spec})
    binding = {"metadata": {"name": "costly"}, "spec": {"policyName": "costly"}}
    await api.made(f"{ADMISSION}/mutatingadmissionpolicybindings", binding)
    assert (await api.made(CONFIG_MAPS, config_map("one")))["data"]["found"] == "yes"
    assert len(watched.threads) == 2


async def test_a_cheap_expression_is_evaluated_at_once(api: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    await bound(api, {"expression": "object.metadata.name != 'bad'"})
    assert (await api.post(CONFIG_MAPS, config_map("good"))).status == 201
    assert (await api.post(CONFIG_MAPS, config_map("bad"))).status == 422
    assert watched.threads == []


async def test_an_expression_that_costs_too_much_has_no_value_and_the_next_ones_have(api: InProcess) -> None:
    await bound(api, {"expression": ENDLESS}, {"expression": "false", "message": "never"}, actions=("Warn",))
    reply = await api.post(CONFIG_MAPS, config_map("one"))
    warnings = reply.header("warning")
    assert (reply.status, len(warnings)) == (201, 2)
    assert "resulted in error: operation cancelled: actual cost limit exceeded" in warnings[0]
    assert warnings[1].endswith(': never"')


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
async def test_once_all_together_cost_too_much_nothing_else_counts(
    api: InProcess, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With less to spend, so that the test does not take the half minute that it would take.
    monkeypatch.setattr(Budget.__init__, "__kwdefaults__", {"limit": 100_000, "inline_budget": None})
    await bound(
        api,
        {"expression": "false", "message": "never"},
        {"expression": LONG},
        {"expression": LONG},
        failurePolicy=policy,
    )
    reply = await api.post(CONFIG_MAPS, config_map("one"))
    if policy == "Ignore":
        assert reply.status == 201
        return
    assert reply.status == 422
    assert reply.message.endswith(f"denied request: {OUT_OF_BUDGET}")


async def test_a_policy_whose_conditions_do_not_hold_says_nothing_for_the_audit_either(api: InProcess) -> None:
    await bound(
        api,
        matchConditions=[{"name": "never", "expression": "false"}],
        auditAnnotations=[{"key": "broken", "valueExpression": "string(object.data['no such key'])"}],
    )
    assert (await api.post(CONFIG_MAPS, config_map("one"))).status == 201


RESOURCE = Resource(
    kind=Kind("", "v1", "ConfigMap"),
    plural="configmaps",
    singular="configmap",
    namespaced=True,
    schema_of=lambda: Schema({}),
    stored=Kind("", "v1", "ConfigMap"),
)


class Hearing:
    """Tells in which thread it is asked."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []

    def decide(self, question: Question) -> CelDecision:
        self.threads.append(threading.current_thread())
        if question.verb == "fail":
            raise ValueError("no answer")
        return CelDecision(True)


async def test_authorizers_are_called_on_the_event_loop() -> None:
    hearing, executor = Hearing(), CelExecutor(run_beside)
    review = Review("CREATE", RESOURCE, "", "default", "a", None, None, User("bob"))

    def oracles(user: User) -> Oracle:
        return hearing

    def evaluation(verb: str, given: Oracles, cost: int | None) -> tuple[bool, threading.Thread]:
        if cost is not None:
            assert cost == INLINE_BUDGET
            raise ExceedsInlineBudget
        return given(User("bob")).decide(Question(verb=verb)).allowed, threading.current_thread()

    owner = object()
    allowed, thread = await executor.evaluate(
        review, "a", owner, lambda given, cost: evaluation("get", given, cost), oracles
    )
    assert allowed
    assert hearing.threads == [threading.current_thread()]
    assert thread is not threading.current_thread()
    assert executor.is_known("a", owner) and not executor.is_known("a", object())
    with pytest.raises(ValueError, match="no answer"):
        await executor.evaluate(review, "a", owner, lambda given, cost: evaluation("fail", given, cost), oracles)
