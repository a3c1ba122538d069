"""Priority levels limit concurrent requests, flows share them fairly, and exempt requests never wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from tests.server.in_process import CONFIG_MAPS, InProcess

from pinnace.auth.sources import FixedObjects
from pinnace.model.authorization import Action
from pinnace.model.users import User
from pinnace.process.exposition import render_histograms
from pinnace.server.flowcontrol import flow_control
from pinnace.server.flowcontrol.flow_control import FlowControl, TurnedAway, hand_of
from pinnace.serving.messages import Answer, Response

LIST = Action("list", "", "", "pods", "", "default", "", "v1")


class Held(FixedObjects):
    """Objects of a test, which it can change."""

    def __init__(self, *objects: dict[str, Any]) -> None:
        super().__init__(*objects)
        self.objects = list(objects)
        self.changed: list[Callable[[str], None]] = []

    def items(self) -> Iterable[tuple[str, Any]]:
        return [(obj["metadata"]["name"], obj) for obj in self.objects]

    def on_change(self, changed: Callable[[str], None]) -> None:
        self.changed.append(changed)


def level(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"level-{name}"}, "spec": spec}


def schema(name: str, level: str, *subjects: dict[str, Any], precedence: int) -> dict[str, Any]:
    anything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
    rule = {"subjects": list(subjects), "resourceRules": [anything]}
    by_user = {"type": "ByUser"}
    spec = {"priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence, "rules": [rule]}
    return {"metadata": {"name": name, "uid": f"schema-{name}"}, "spec": {**spec, "distinguisherMethod": by_user}}


MASTERS = {"kind": "Group", "group": {"name": "system:masters"}}
ALL = {"kind": "Group", "group": {"name": "*"}}
QUEUE = {"type": "Queue", "queuing": {"queues": 4, "handSize": 1, "queueLengthLimit": 3}}


def control(*, seats: int = 1, response: dict[str, Any] = QUEUE, queue_seconds: float = 15) -> FlowControl:
    limited = {"nominalConcurrencyShares": 10, "limitResponse": response}
    levels = Held(level("exempt", type="Exempt"), level("rest", type="Limited", limited=limited))
    schemas = Held(schema("all", "rest", ALL, precedence=9), schema("masters", "exempt", MASTERS, precedence=1))
    return FlowControl(schemas, levels, seats=seats, queue_seconds=queue_seconds)


class Work:
    """Requests that run until the test ends them; `begun` lists them in order."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ends: list[asyncio.Event] = []

    def by(self, name: str) -> Callable[[], Any]:
        async def work() -> Answer:
            self.begun.append(name)
            end = asyncio.Event()
            self.ends.append(end)
            await end.wait()
            return Response(200, b"")

        return work

    def start(self, flow: FlowControl, user: User) -> asyncio.Task[Any]:
        return asyncio.create_task(self.answer(flow, user))

    async def answer(self, flow: FlowControl, user: User, about: Any = None) -> Answer:
        """Take a turn and work as the handler does."""
        try:
            turn = await flow.take_turn(user, LIST, about)
        except TurnedAway as turned_away:
            return turned_away.response
        try:
            answer: Answer = await self.by(user.name)()
            return turn.mark(answer)
        finally:
            turn.end()


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_flows_take_turns_and_what_is_too_much_is_refused() -> None:
    flow, work = control(), Work()
    noisy, quiet = User("noisy"), User("quiet")
    tasks = [work.start(flow, noisy) for _ in range(6)] + [work.start(flow, quiet)]
    await turn()
    assert work.begun == ["noisy"]
    refused = [task.result() for task in tasks if task.done()]
    assert [answer.status for answer in refused] == [429, 429]
    assert b"Retry-After: 1\r\n" in refused[0].headers and refused[0].body.startswith(b"Too many requests")
    for number in range(5):
        work.ends[number].set()
        await turn()
    assert work.begun == ["noisy", "noisy", "quiet", "noisy", "noisy"]
    answers = await asyncio.gather(*tasks)
    assert sorted(answer.status for answer in answers) == [200] * 5 + [429] * 2
    assert b"X-Kubernetes-PF-FlowSchema-UID: schema-all\r\n" in answers[0].headers
    assert b"X-Kubernetes-PF-PriorityLevel-UID: level-rest\r\n" in answers[0].headers


async def test_masters_never_wait() -> None:
    flow, work = control(), Work()
    tasks = [work.start(flow, User("noisy")) for _ in range(3)]
    tasks += [work.start(flow, User("root", ("system:masters",))) for _ in range(3)]
    await turn()
    assert work.begun == ["noisy", "root", "root", "root"]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_level_that_rejects_has_no_queue() -> None:
    flow, work = control(response={"type": "Reject"}), Work()
    tasks = [work.start(flow, User("a")) for _ in range(2)]
    await turn()
    assert tasks[1].result().status == 429
    work.ends[0].set()
    assert (await tasks[0]).status == 200


async def test_a_request_that_times_out_or_leaves_takes_no_seat() -> None:
    flow, work = control(queue_seconds=0.01), Work()
    first, late = work.start(flow, User("a")), work.start(flow, User("b"))
    assert (await late).status == 429
    gone = work.start(flow, User("c"))
    await turn()
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    work.ends[0].set()
    await first
    last = work.start(flow, User("d"))
    await turn()
    work.ends[-1].set()
    assert (await last).status == 200 and work.begun == ["a", "d"]


async def test_a_request_that_leaves_makes_room_in_the_queue() -> None:
    flow, work = control(queue_seconds=0.3), Work()
    tasks = [work.start(flow, User("a")) for _ in range(5)]
    await turn()
    assert tasks[4].result().status == 429
    assert [(await task).status for task in tasks[1:4]] == [429] * 3
    again = [work.start(flow, User("a")) for _ in range(3)]
    await turn()
    assert not any(task.done() for task in again)
    work.ends[0].set()
    for task in [tasks[0], *again]:
        task.cancel()
    await asyncio.gather(*tasks, *again, return_exceptions=True)


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
async def test_a_task_that_is_cancelled_before_it_starts_takes_no_seat_along() -> None:
    flow, work = control(), Work()

    for _ in range(3):  # The first would be seated, the others would wait.
        tasks = [work.start(flow, User(name)) for name in "abc"]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    del task, tasks  # As in the server: ended tasks are not kept.
    await turn()
    assert work.begun == []
    (rest,) = [level for level in flow.levels if level.name == "rest"]
    assert (rest.executing, rest.waiting, rest.queues, rest.pool.used) == (0, 0, {}, rest.nominal)
    last = work.start(flow, User("d"))
    await turn()
    work.ends[0].set()
    assert (await last).status == 200


# Inside a level.


def test_a_flow_is_dealt_different_queues_and_always_the_same() -> None:
    hands = {name: hand_of(name, queues=64, size=8) for name in map(str, range(500))}
    assert all(len(set(hand)) == 8 and set(hand) <= set(range(64)) for hand in hands.values())
    assert hands["7"] == hand_of("7", queues=64, size=8)
    used = [sum(queue in hand for hand in hands.values()) for queue in range(64)]
    assert min(used) > 30 and max(used) < 100  # 62.5 each on average.
    noisy = set(hands["0"])
    assert sum(set(hand) <= noisy for hand in hands.values()) == 1  # Itself alone.
    assert hand_of("a", queues=3, size=8) and len(set(hand_of("a", queues=3, size=8))) == 3
    assert hand_of("a", queues=0, size=0) == ()


async def test_a_flood_of_one_flow_leaves_the_others_their_turns() -> None:
    queuing = {"type": "Queue", "queuing": {"queues": 64, "handSize": 6, "queueLengthLimit": 50}}
    flow, work = control(response=queuing), Work()
    tasks = [work.start(flow, User("noisy")) for _ in range(1_000)]
    tasks += [work.start(flow, User(f"quiet-{number}")) for number in range(20)]
    await turn()
    refused = sum(task.done() for task in tasks)
    assert refused == 1_000 - 1 - 6 * 50  # Its whole hand is full, and no other flow was rejected.
    for number in range(200):
        work.ends[number].set()
        await turn()
    served = work.begun[:200]
    assert sum(name.startswith("quiet") for name in served) == 20
    # Each queue has one turn in a round of at most 26: a quiet flow waits for few of them.
    assert all(served.index(f"quiet-{number}") <= 3 * 26 for number in range(20))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


# Between levels.


def two_levels(*, lendable: int = 50, **borrower: Any) -> FlowControl:
    """`lender` and `borrower` with ten seats each."""
    lending = {"nominalConcurrencyShares": 10, "limitResponse": QUEUE, "lendablePercent": lendable}
    borrowing = {"nominalConcurrencyShares": 10, "limitResponse": QUEUE, **borrower}
    levels = Held(
        level("lender", type="Limited", limited=lending), level("borrower", type="Limited", limited=borrowing)
    )
    boss = {"kind": "User", "user": {"name": "lender"}}
    schemas = Held(schema("lend", "lender", boss, precedence=1), schema("rest", "borrower", ALL, precedence=2))
    return FlowControl(schemas, levels, seats=20)


async def test_unused_seats_are_lent_and_guaranteed_ones_are_not() -> None:
    flow, work = two_levels(), Work()
    tasks = [work.start(flow, User("busy")) for _ in range(18)]
    await turn()
    assert work.begun == ["busy"] * 15  # Ten of its own, and five of the lender's ten.
    own = [work.start(flow, User("lender")) for _ in range(6)]
    await turn()
    assert work.begun == ["busy"] * 15 + ["lender"] * 5
    for number in range(2):
        work.ends[number].set()
        await turn()
    # The first seat that comes free is the lender's own: the borrower has more than its share.
    assert work.begun[20:] == ["lender", "busy"]
    for task in [*tasks, *own]:
        task.cancel()
    await asyncio.gather(*tasks, *own, return_exceptions=True)
    assert [(level.executing, level.waiting, level.pool.used) for level in flow.levels] == [(0, 0, 15)] * 2


@pytest.mark.parametrize(("percent", "seats"), [(0, 10), (20, 12), (None, 15)])
async def test_a_level_borrows_no_more_than_it_may(percent: int | None, seats: int) -> None:
    flow, work = two_levels(borrowingLimitPercent=percent), Work()
    tasks = [work.start(flow, User("busy")) for _ in range(17)]
    await turn()
    assert len(work.begun) == seats
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_limits_that_change_count_at_once() -> None:
    limited = {"nominalConcurrencyShares": 10, "limitResponse": QUEUE}
    levels = Held(level("rest", type="Limited", limited=limited))
    schemas = Held(schema("all", "rest", ALL, precedence=9))
    flow, work = FlowControl(schemas, levels, seats=2), Work()
    tasks = [work.start(flow, User("a")) for _ in range(4)]
    await turn()
    assert len(work.begun) == 2
    levels.objects = [level("rest", type="Exempt")]
    for changed in levels.changed:
        changed("rest")
    tasks.append(work.start(flow, User("b")))
    await turn()
    assert len(work.begun) == 5
    levels.objects = []
    for changed in levels.changed:
        changed("rest")
    tasks.append(work.start(flow, User("c")))
    await turn()
    for end in work.ends:
        end.set()
    assert [answer.status for answer in await asyncio.gather(*tasks)] == [200] * 6


async def test_metrics_have_the_names_of_kubernetes() -> None:
    flow, work = control(), Work()
    tasks = [work.start(flow, User("a")) for _ in range(6)]
    await turn()
    samples = {name: dict(read()) for name, _, read in flow_control.gauges(flow)}
    where = (("flow_schema", "all"), ("priority_level", "rest"))
    prefix = "apiserver_flowcontrol_"
    assert samples[f"{prefix}dispatched_requests_total"][where] == 1
    assert samples[f"{prefix}current_inqueue_requests"][where] == 3
    assert samples[f"{prefix}rejected_requests_total"] == {(*where, ("reason", "queue-full")): 2}
    assert samples[f"{prefix}current_executing_requests"][(("priority_level", "rest"),)] == 1
    assert samples[f"{prefix}nominal_limit_seats"][(("priority_level", "rest"),)] == 1
    for number in range(4):
        work.ends[number].set()
        await turn()
    await asyncio.gather(*tasks)
    labels = 'execute="true",flow_schema="all",priority_level="rest"'
    lines = list(render_histograms(flow_control.WAIT_SECONDS, "", flow_control.wait_durations(flow)))
    assert f"{prefix}request_wait_duration_seconds_count{{{labels}}} 4" in lines
    assert f'{prefix}request_wait_duration_seconds_bucket{{{labels},le="0"}} 1' in lines


async def test_metrics_show_every_level(api: InProcess) -> None:
    text = (await api.get("/metrics")).body.decode()
    assert 'apiserver_flowcontrol_nominal_limit_seats{priority_level="workload-low"} 245' in text
    assert 'apiserver_flowcontrol_lower_limit_seats{priority_level="workload-low"} 24' in text
    assert 'apiserver_flowcontrol_upper_limit_seats{priority_level="workload-low"} 845' in text
    assert "# TYPE apiserver_flowcontrol_dispatched_requests_total counter" in text


@pytest.mark.parametrize(
    "target",
    [CONFIG_MAPS, "/version", "/healthz", "/api", "/apis", "/apis/apps", "/apis/apps/v1", "/openapi/v2", "/openapi/v3"],
)
async def test_an_answer_names_its_schema_and_level(api: InProcess, target: str) -> None:
    await api.get(target)
    reply = await api.get(target)  # The kept answer does not have the added headers.
    group = "/apis/flowcontrol.apiserver.k8s.io/v1"
    named = await api.get(f"{group}/flowschemas/exempt")
    assert reply.header("x-kubernetes-pf-flowschema-uid") == [named.json["metadata"]["uid"]]
    named = await api.get(f"{group}/prioritylevelconfigurations/exempt")
    assert reply.header("x-kubernetes-pf-prioritylevel-uid") == [named.json["metadata"]["uid"]]


@pytest.mark.parametrize("target", [CONFIG_MAPS, "/metrics", "/apis/example.com/v1/unknown"])
async def test_so_does_a_refusal(api: InProcess, target: str) -> None:
    bob = InProcess(api.plane, User("bob", ("system:authenticated",)))
    reply = await bob.get(target)
    assert reply.status == 403
    named = await api.get("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/global-default")
    assert reply.header("x-kubernetes-pf-flowschema-uid") == [named.json["metadata"]["uid"]]
    assert len(reply.header("x-kubernetes-pf-prioritylevel-uid")) == 1


FLOWS = "/apis/flowcontrol.apiserver.k8s.io/v1"


async def counted(api: InProcess, code: int) -> list[str]:
    """Return the lines of /metrics about lists of config maps."""
    lines = (await api.get("/metrics")).body.decode().splitlines()
    return [line for line in lines if line.startswith("apiserver_request_total") and f'code="{code}"' in line]


async def test_a_request_that_gets_no_turn_is_counted_as_that_and_as_nothing_else(api: InProcess) -> None:
    bob = InProcess(api.plane, User("bob", ("system:authenticated",)))
    assert (await bob.get(CONFIG_MAPS)).status == 403
    assert await counted(api, 403) == []
    limited = {"nominalConcurrencyShares": 0, "lendablePercent": 0, "limitResponse": {"type": "Reject"}}
    limited["borrowingLimitPercent"] = 0
    never = {"metadata": {"name": "never"}, "spec": {"type": "Limited", "limited": limited}}
    await api.made(f"{FLOWS}/prioritylevelconfigurations", never)
    of_bob = {"kind": "User", "user": {"name": "bob"}}
    await api.made(f"{FLOWS}/flowschemas", {**schema("bob", "never", of_bob, precedence=2), "metadata": {"name": "b"}})
    for target in (CONFIG_MAPS, "/api/v1/namespaces/default/nosuchthings"):
        assert (await bob.get(target)).status == 429
    lines = await counted(api, 429)
    assert len(lines) == 1  # Unknown resources make no labels.
    assert 'resource="configmaps"' in lines[0] and 'verb="LIST"' in lines[0] and lines[0].endswith(" 1")


async def test_requests_that_waited_in_vain_are_counted_as_rejected() -> None:
    rejected: list[Any] = []
    limited = {"nominalConcurrencyShares": 10, "limitResponse": QUEUE}
    levels, schemas = (
        Held(level("rest", type="Limited", limited=limited)),
        Held(schema("all", "rest", ALL, precedence=9)),
    )
    flow, work = FlowControl(schemas, levels, seats=1, queue_seconds=0.01, on_reject=rejected.append), Work()
    first = work.start(flow, User("a"))
    await turn()
    about: Any = object()
    late = asyncio.create_task(work.answer(flow, User("b"), about))
    await turn()
    assert rejected == []
    assert (await late).status == 429
    assert rejected == [about]
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
