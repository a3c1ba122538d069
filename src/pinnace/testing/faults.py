"""Faults by rule: what goes wrong between a client and the server, chosen by verb, resource, name, user or client."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any, Protocol, TypedDict, Unpack

import orjson

from pinnace.kinds.golang.field_numbers import decode_answer, encode_answer
from pinnace.model import errors
from pinnace.model.authorization import Action
from pinnace.model.objects import Object
from pinnace.model.users import User, is_cluster_part
from pinnace.model.webhooks import WebhookCallError, WebhookEndpoint
from pinnace.process.clock import AlarmClock, to_rfc3339_micro
from pinnace.schema.golang.protobuf import read_event, split_events
from pinnace.schema.golang.protobuf_encoding import watch_event
from pinnace.server.handler import ServerApi
from pinnace.server.local import LocalApi
from pinnace.serving.messages import Answer, Request, ResponseStream, StreamingResponse, frame, unframe

_GROUPS = {
    "write": frozenset(("create", "update", "patch", "delete", "deletecollection")),
    "read": frozenset(("get", "list")),
    "view": frozenset(("get", "list", "watch")),
}
_CONFLICT = "the object has been modified; please apply your changes to the latest version and try again"
_TIMEOUT = "request did not complete within requested timeout"


class UnusedFault(UserWarning):
    """A fault rule matched nothing until its test ended."""


class FaultOptions(TypedDict, total=False):
    """Selects requests, and how often the fault happens. All that is given must match."""

    verb: str
    """A verb of Kubernetes (create, update, patch, delete, get, list, watch), or one of several: `write`, `read` (get
    and list), `view` (get, list and watch)."""
    resource: str
    """A plural such as deployments, deployments.apps or deployments/status; with * as wildcard."""
    namespace: str
    name: str
    """The object's name; with * as wildcard."""
    user: str
    """The user's name; with * as wildcard. Without it the cluster's own parts are left alone."""
    client: str
    """The client's user agent, which is the operator's name for operators of the SDK; with * as wildcard."""
    times: int
    """How often; without it until the rule is lifted."""
    probability: float
    """The share of matching requests, from 0 to 1."""
    seed: int
    """The seed of the probability: the same requests fail in every run."""


@dataclass(frozen=True, slots=True)
class InjectedFault:
    """A fault that happened."""

    time: datetime
    fault: str
    verb: str
    resource: str
    key: str
    """The object's namespace/name, as far as the request has them."""
    user: str
    client: str

    def __str__(self) -> str:
        where = f"{self.resource} {self.key}".rstrip()
        return f"{self.time:%H:%M:%S} {self.fault}: {self.verb} {where} by {self.client or self.user}"


@dataclass(frozen=True, slots=True)
class Interception:
    """A request on its way, for the fault that happens to it."""

    request: Request
    action: Action
    user: User
    client: str
    proceed: Callable[[], Awaitable[Answer]]
    """Let the server answer."""
    fail: Callable[[errors.ApiError], Answer]
    """Return the answer of an error."""


Effect = Callable[[Interception], Awaitable[Answer]]


@dataclass(eq=False)
class FaultRule:
    """One rule. It holds until `lift`, or until it has happened often enough."""

    fault: str
    options: FaultOptions
    count: int = 0
    """How often it has happened."""
    is_lifted: bool = False
    effect: Effect | None = None
    """Called with a request that matches; None for a rule about the events of watches or about webhooks."""
    delay: float = 0.0
    """The seconds for which it holds the events of watches."""
    withholds: bool = False
    """Whether it leaves out events of watches."""
    _random: random.Random = field(default_factory=random.Random)
    _on_lift: Callable[[], None] | None = None

    def __post_init__(self) -> None:
        unknown = set(self.options) - set(FaultOptions.__annotations__)
        if unknown:
            expected = ", ".join(FaultOptions.__annotations__)
            raise ValueError(f"a fault has no option {', '.join(sorted(unknown))}; expected {expected}")
        chance = self.options.get("probability", 1.0)
        if not 0 <= chance <= 1:
            raise ValueError(f"the probability of a fault is from 0 to 1, not {chance:g}")
        self._random.seed(self.options.get("seed", 0))

    def lift(self) -> None:
        """End the rule."""
        if not self.is_lifted:
            self.is_lifted = True
            if self._on_lift is not None:
                self._on_lift()

    def call_on_lift(self, callback: Callable[[], None]) -> None:
        """Call back when the rule ends."""
        self._on_lift = callback

    def __enter__(self) -> FaultRule:
        return self

    def __exit__(self, *_: object) -> None:
        self.lift()

    def matches(self, action: Action, name: str, user: User, client: str) -> bool:
        """Whether the rule is about this request."""
        options = self.options
        if self.is_lifted or not _is_verb(options.get("verb", ""), action.verb):
            return False
        if "user" not in options and "client" not in options and is_cluster_part(user.name):
            return False
        return (
            fnmatchcase(user.name, options.get("user", "*"))
            and fnmatchcase(client, options.get("client", "*"))
            and _is_resource(options.get("resource", "*"), action)
            and fnmatchcase(action.namespace, options.get("namespace", "*"))
            and fnmatchcase(name, options.get("name", "*"))
        )

    def happens(self) -> bool:
        """Decide, for a request that matches, whether the fault happens, and count it."""
        if self._random.random() >= self.options.get("probability", 1.0):
            return False
        self.count += 1
        if self.count >= self.options.get("times", self.count + 1):
            self.lift()
        return True


def _is_verb(wanted: str, verb: str) -> bool:
    return not wanted or verb == wanted or verb in _GROUPS.get(wanted, ())


def _is_resource(wanted: str, action: Action) -> bool:
    resource = f"{action.resource}/{action.subresource}" if action.subresource else action.resource
    return fnmatchcase(resource, wanted) or fnmatchcase(f"{resource}.{action.group}", wanted)


class Faults:
    """The faults of one cluster. Each method adds a rule, which holds until it is lifted or has happened often enough.

    The options select requests: `verb`, `resource`, `namespace`, `name`, `user`, `client`; and how often: `times`,
    `probability` with `seed`. Of several rules that match a request, the first that happens decides.
    """

    def __init__(self, clock: AlarmClock, system: Callable[[], LocalApi], freeze: Callable[[], ServerApi]) -> None:
        """`system` calls the API as the server itself. `freeze` returns an API with the objects of now."""
        self._clock = clock
        self._system = system
        self._freeze = freeze
        self.rules: list[FaultRule] = []
        self.injected: list[InjectedFault] = []
        """The faults that have happened, oldest first."""
        self.on_inject: Callable[[InjectedFault], None] | None = None
        """Called with each fault that happens."""
        self.watches: set[WatchStream] = set()
        """The open watches."""
        self.event_filter: Callable[[str, Object], bool] | None = None
        """Called with the client and each event of its watches: whether the client gets it."""

    # Requests

    def conflict(self, **options: Unpack[FaultOptions]) -> FaultRule:
        """Answer 409: another client has changed the object."""
        return self._add("conflict", _raise(_conflict_error), {"verb": "write", **options})

    def error(self, code: int = 500, **options: Unpack[FaultOptions]) -> FaultRule:
        """Answer with an error of the server: 500, 503 or 504."""
        made: dict[int, Callable[[], errors.ApiError]] = {
            500: lambda: errors.InternalError("injected fault"),
            503: _unavailable,
            504: timeout_error,
        }
        if code not in made:
            raise ValueError(f"an error of the server is 500, 503 or 504, not {code}")
        return self._add(f"error {code}", _raise(lambda _: made[code]()), options)

    def too_many_requests(self, retry_after: int = 1, **options: Unpack[FaultOptions]) -> FaultRule:
        """Answer 429 with Retry-After, in seconds."""
        limited = _raise(lambda _: errors.TooManyRequests("too many requests", retry_after=retry_after))
        return self._add("too many requests", limited, options)

    def timeout(self, *, committed: bool = False, **options: Unpack[FaultOptions]) -> FaultRule:
        """Answer with a time-out: before the write, or after it was `committed`, which the client cannot tell."""

        async def effect(call: Interception) -> Answer:
            if committed:
                await call.proceed()
            return call.fail(timeout_error())

        return self._add(
            f"timeout {'after' if committed else 'before'} the write", effect, {"verb": "write", **options}
        )

    def latency(self, seconds: float, **options: Unpack[FaultOptions]) -> FaultRule:
        """Answer later, by the cluster's clock: `await cluster.advance(seconds)` lets the request go on."""

        async def effect(call: Interception) -> Answer:
            await self._clock.sleep(seconds)
            return await call.proceed()

        return self._add(f"latency of {seconds:g} s", effect, options)

    def freeze(self) -> ServerApi:
        """Return an API with the objects of now, for `stale_reads`."""
        return self._freeze()

    def stale_reads(self, frozen: ServerApi | None = None, **options: Unpack[FaultOptions]) -> FaultRule:
        """Answer reads with the state of now, however the objects change, as a server that lags behind does.

        `frozen` is an earlier state, from `freeze`.
        """
        past = frozen or self._freeze()

        async def effect(call: Interception) -> Answer:
            answer = past(call.request, call.user)
            return await answer if isinstance(answer, Awaitable) else answer

        return self._add("stale read", effect, {"verb": "read", **options})

    def lose_lease(self, holder: str = "another", **options: Unpack[FaultOptions]) -> FaultRule:
        """Give a Lease to another holder when its own holder renews it, which then gets a conflict."""

        async def effect(call: Interception) -> Answer:
            now = to_rfc3339_micro(self._clock.now())
            patch = {"spec": {"holderIdentity": holder, "renewTime": now, "acquireTime": now}}
            headers = {"content-type": "application/merge-patch+json", "user-agent": holder}
            path = call.request.path.removesuffix("/status")
            await self._system().request("PATCH", path, orjson.dumps(patch), headers)
            return call.fail(_conflict_error(call))

        return self._add("lost lease", effect, {"verb": "write", "resource": "leases", **options})

    def add(self, fault: str, effect: Effect, **options: Unpack[FaultOptions]) -> FaultRule:
        """Add a fault of your own: `effect` is called with each `Interception` and returns the answer."""
        return self._add(fault, effect, options)

    # Watches

    def cut_watch(self, **options: Unpack[FaultOptions]) -> FaultRule:
        """End open watches at once, and new ones at their start. Clients resume."""
        rule = self._add("cut watch", _end_at_once, {**options, "verb": "watch"})
        for stream in list(self.watches):
            if not rule.is_lifted and stream.is_matched(rule) and rule.happens():
                self.note(rule, stream.action, stream.action.name, stream.user, stream.client)
                stream.cut()
        return rule

    def delay_events(self, seconds: float, **options: Unpack[FaultOptions]) -> FaultRule:
        """Hold an event, and those that follow on the same watch, by the cluster's clock."""
        return self._add(f"event delayed by {seconds:g} s", None, {**options, "verb": "watch"}, delay=seconds)

    def withhold_events(self, **options: Unpack[FaultOptions]) -> FaultRule:
        """Leave out events of watches. When the rule is lifted, these watches expire, so that clients list again."""
        return self._add("event withheld", None, {**options, "verb": "watch"}, withholds=True)

    # Webhooks

    def fail_webhook(self, **options: Unpack[FaultOptions]) -> FaultRule:
        """Let calls of webhooks fail. `name` selects the service's name, or the URL."""
        return self._add("webhook failed", None, {**options, "verb": "webhook"})

    async def check_webhook(self, endpoint: WebhookEndpoint) -> None:
        """Raise WebhookCallError if a rule says that this call fails."""
        name = endpoint.service[1] if endpoint.service is not None else endpoint.url
        action = Action("webhook", resource="webhooks", name=name)
        for rule in list(self.rules):
            if rule.options.get("verb") == "webhook" and rule.matches(action, name, _SERVER, "") and rule.happens():
                self.note(rule, action, name, _SERVER, "")
                raise WebhookCallError(f"{name}: injected fault")

    # For the server

    def find(self, action: Action, request: Request, user: User, client: str) -> FaultRule | None:
        """Return the rule that happens to a request, if there is one."""
        name = action.name
        for rule in self.rules:
            if rule.effect is None or rule.is_lifted:
                continue
            if not name and "name" in rule.options:
                name = name_in(request.body)
            if rule.matches(action, name, user, client) and rule.happens():
                self.note(rule, action, name or name_in(request.body), user, client)
                return rule
        return None

    def note(self, rule: FaultRule, action: Action, name: str, user: User, client: str) -> None:
        """Write down a fault that happens now."""
        resource = f"{action.resource}/{action.subresource}" if action.subresource else action.resource
        key = f"{action.namespace}/{name}" if action.namespace else name
        injected = InjectedFault(self._clock.now(), rule.fault, action.verb, resource, key, user.name, client)
        self.injected.append(injected)
        if self.on_inject is not None:
            self.on_inject(injected)

    def lift(self) -> None:
        """End all rules."""
        for rule in self.rules:
            rule.lift()

    @property
    def unused(self) -> list[FaultRule]:
        """The rules that have matched nothing."""
        return [rule for rule in self.rules if not rule.count]

    def report(self) -> str:
        """Return the faults that happened, a line each, and the rules that did not."""
        lines = [str(fault) for fault in self.injected]
        lines += [f"never: {describe(rule)}" for rule in self.unused]
        return "\n".join(lines)

    def _add(
        self,
        fault: str,
        effect: Effect | None,
        options: FaultOptions,
        *,
        delay: float = 0.0,
        withholds: bool = False,
    ) -> FaultRule:
        rule = FaultRule(fault, options, effect=effect, delay=delay, withholds=withholds)
        if withholds:
            rule.call_on_lift(self._expire_incomplete)
        self.rules.append(rule)
        return rule

    def _expire_incomplete(self) -> None:
        for stream in list(self.watches):
            if stream.is_incomplete:
                stream.expire()


_SERVER = User("apiserver", ())


def describe(rule: FaultRule) -> str:
    """Return the rule as text: its fault and its options."""
    return f"{rule.fault} ({', '.join(f'{name}={value}' for name, value in rule.options.items())})"


def name_in(body: bytes) -> str:
    """Return the object's name in the body of a create; empty if there is none."""
    try:
        return str(orjson.loads(body)["metadata"]["name"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return ""


async def _end_at_once(call: Interception) -> Answer:
    answer = await call.proceed()
    return replace(answer, start=lambda stream: stream.finish()) if isinstance(answer, StreamingResponse) else answer


def _raise(make: Callable[[Interception], errors.ApiError]) -> Effect:
    async def effect(call: Interception) -> Answer:
        return call.fail(make(call))

    return effect


def _conflict_error(call: Interception) -> errors.ApiError:
    action = call.action
    return errors.Conflict(_CONFLICT, group=action.group, plural=action.resource, name=action.name)


def _unavailable() -> errors.ApiError:
    return errors.Unavailable("the server is currently unable to handle the request")


def timeout_error() -> errors.ApiError:
    """Return the error of a request that takes too long."""
    return errors.Timeout(_TIMEOUT)


class WatchEvents(Protocol):
    """The format of the events of a watch."""

    def split(self, data: bytes) -> list[bytes]: ...

    def decode(self, event: bytes) -> Any:
        """Return the event with `type` and `object`."""

    def error(self, error: errors.ApiError) -> bytes: ...


class JsonEvents:
    """A line for each event."""

    def split(self, data: bytes) -> list[bytes]:
        return data.splitlines(keepends=True)

    def decode(self, event: bytes) -> Any:
        return orjson.loads(event)

    def error(self, error: errors.ApiError) -> bytes:
        return orjson.dumps({"type": "ERROR", "object": error.status}, option=orjson.OPT_APPEND_NEWLINE)


class ProtobufEvents:
    """A message for each event, after its length."""

    def split(self, data: bytes) -> list[bytes]:
        return split_events(data)

    def decode(self, event: bytes) -> Any:
        decoded = read_event(event)
        return {"type": decoded.type, "object": decode_answer(decoded.body)}

    def error(self, error: errors.ApiError) -> bytes:
        return watch_event("ERROR", encode_answer(error.status))


class WatchStream:
    """Stands between a watch and its client. Without rules about events it passes on what it gets."""

    def __init__(
        self,
        inner: ResponseStream,
        events: WatchEvents,
        faults: Faults,
        clock: AlarmClock,
        of: tuple[Action, User, str],
    ) -> None:
        self._inner = inner
        self._events = events
        self._faults = faults
        self._clock = clock
        self.action, self.user, self.client = of
        self._held: list[bytes] | None = None
        self.is_incomplete = False
        """Events were withheld from the client."""
        faults.watches.add(self)
        inner.on_close(lambda: faults.watches.discard(self))

    def is_matched(self, rule: FaultRule) -> bool:
        """Whether a rule is about this watch."""
        return rule.matches(self.action, self.action.name, self.user, self.client)

    def cut(self) -> None:
        """End the watch, as after its time."""
        self._inner.finish()

    def expire(self) -> None:
        """End the watch with 410 Expired: the client lists again."""
        error = errors.Expired("too old resource version: injected fault")
        self._inner.write(frame(self._events.error(error)))
        self._inner.finish()

    # The ResponseStream interface.

    @property
    def closed(self) -> bool:
        return self._inner.closed

    @property
    def buffered(self) -> int:
        return self._inner.buffered

    def write(self, chunk: bytes) -> None:
        if self._held is not None:
            self._held.append(chunk)
            return
        rules = [rule for rule in self._faults.rules if (rule.delay or rule.withholds) and not rule.is_lifted]
        if not rules and self._faults.event_filter is None:
            self._inner.write(chunk)
            return
        for line in self._events.split(unframe(chunk)):
            if self._held is not None:
                self._held.append(frame(line))
            else:
                self._write_event(line, rules)

    def _write_event(self, line: bytes, rules: list[FaultRule]) -> None:
        event = self._events.decode(line)
        passes = self._faults.event_filter
        if passes is not None and event["type"] != "BOOKMARK" and not passes(self.client, event):
            return
        rule = self._rule_for(event, rules)
        if rule is None:
            self._inner.write(frame(line))
        elif rule.withholds:
            self.is_incomplete = True
            if rule.is_lifted:  # It has happened often enough with this event.
                self._clock.call_later(0, self.expire)
        else:
            self._held = [frame(line)]
            self._clock.call_later(rule.delay, self._release)

    def _rule_for(self, event: Any, rules: list[FaultRule]) -> FaultRule | None:
        if event["type"] in ("BOOKMARK", "ERROR"):
            return None
        metadata = event["object"].get("metadata") or {}
        name = metadata.get("name", "")
        action = self.action._replace(namespace=metadata.get("namespace", ""))
        for rule in rules:
            if rule.matches(action, name, self.user, self.client) and rule.happens():
                self._faults.note(rule, action, name, self.user, self.client)
                return rule
        return None

    def _release(self) -> None:
        held, self._held = self._held or [], None
        for chunk in held:
            self.write(chunk)

    async def drain(self) -> None:
        await self._inner.drain()

    def on_close(self, callback: Callable[[], None]) -> None:
        self._inner.on_close(callback)

    def finish(self) -> None:
        self._inner.finish()
