"""Call HTTP extenders. One that fails or exceeds its timeout fails the pod, unless it is ignorable."""

from __future__ import annotations

import asyncio
import logging
import ssl
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import orjson

from pinnace.model.objects import Object
from pinnace.model.typed_objects import Node
from pinnace.model.typed_objects import Pod as PodObject
from pinnace.process.outbound import OutboundClient, OutboundFailed, OutboundTimeout, OutboundTooLarge
from pinnace.process.tls import client_tls
from pinnace.process.tracing import client_span
from pinnace.scheduler.extenders import wire
from pinnace.scheduler.extenders.settings import ExtenderSettings, ExtenderTls
from pinnace.scheduler.framework.cycle import Cycle
from pinnace.scheduler.framework.diagnosis import EXTENDER, ExtenderVerdict
from pinnace.scheduler.framework.plugin import Plugin
from pinnace.scheduler.framework.status import PluginError

_log = logging.getLogger(__name__)
_Parsed = TypeVar("_Parsed")
_LONGEST_ANSWER = 128 << 20
"""Bytes: 20,000 nodes of 5 kB are less."""
_SECONDS = 5.0
"""The limit of an exchange, unless an extender has its own."""
_LONGEST_NAME = 253
_SCALE = 100 // wire.HIGHEST_PRIORITY

NodeObjects = Callable[[str], Node]
Victims = Mapping[str, tuple[Sequence[PodObject], int]]
"""The pods that would be evicted from each node, and how many of them violate a disruption budget."""


class ExtenderError(Exception):
    """An extender did not answer, or answered with an error: the pod is tried again later."""


@dataclass(frozen=True, slots=True)
class ExtenderFilter:
    """The nodes that all extenders accept, and the reasons of the others."""

    names: Sequence[str]
    failed: Mapping[str, str]
    unresolvable: Mapping[str, str]


class Extenders:
    """All extenders of a configuration. `node` returns the whole object of a node."""

    def __init__(self, extenders: Sequence[ExtenderSettings], node: NodeObjects) -> None:
        self.settings = list(extenders)
        self._node = node
        self._outbound = OutboundClient(largest=_LONGEST_ANSWER, seconds=_SECONDS, redirects=10)
        self._contexts: dict[int, ssl.SSLContext | bool] = {}

    def __bool__(self) -> bool:
        return bool(self.settings)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close the connections; a later call opens them again."""
        await self._outbound.close()

    async def filter(self, pod: PodObject, names: Sequence[str]) -> ExtenderFilter:
        """Ask one extender after the other; each gets the nodes that the ones before it have accepted."""
        failed: dict[str, str] = {}
        unresolvable: dict[str, str] = {}
        for extender in self.settings:
            if not names:
                break
            if not extender.filter_verb or not extender.is_interested(pod):
                continue
            try:
                result = await self._filter_with(extender, pod, names)
            except ExtenderError as error:
                if not extender.ignorable:
                    raise
                _log.info("extender %s is skipped because it is ignorable: %s", extender.url_prefix, error)
                continue
            failed.update(result.failed)
            unresolvable.update(result.unresolvable)
            names = result.names or ()
        return ExtenderFilter(
            names, {name: why for name, why in failed.items() if name not in unresolvable}, unresolvable
        )

    async def _filter_with(self, extender: ExtenderSettings, pod: PodObject, names: Sequence[str]) -> wire.FilterResult:
        result = await self._ask(
            extender, extender.filter_verb, self._args(extender, pod, names), wire.parse_filter_result
        )
        if result.error:
            raise ExtenderError(result.error)
        known = set(names)
        for name in result.names or ():
            if name not in known:
                claimed = name[:_LONGEST_NAME]
                raise ExtenderError(
                    f'extender "{extender.url_prefix}" claims a filtered node "{claimed}" which is not found in the '
                    "input node list"
                )
        return result

    async def prioritize(self, pod: PodObject, names: Sequence[str]) -> dict[str, int]:
        """Return the points that extenders add to the total of each node. An extender that fails adds none."""
        interested = [
            extender for extender in self.settings if extender.prioritize_verb and extender.is_interested(pod)
        ]
        answers = await asyncio.gather(*(self._prioritize_with(settings, pod, names) for settings in interested))
        totals: dict[str, int] = {}
        for extender, scores in zip(interested, answers, strict=True):
            for name, score in scores.items():
                totals[name] = totals.get(name, 0) + score * extender.weight * _SCALE
        return totals

    async def _prioritize_with(
        self, extender: ExtenderSettings, pod: PodObject, names: Sequence[str]
    ) -> dict[str, int]:
        try:
            return await self._ask(
                extender, extender.prioritize_verb, self._args(extender, pod, names), wire.parse_priorities
            )
        except ExtenderError as error:
            _log.info("extender %s gives no scores: %s", extender.url_prefix, error)
            return {}

    async def judge(self, pod: PodObject, names: Sequence[str]) -> ExtenderVerdict:
        """Return the nodes that all extenders accept, with the points that they add. Raise ExtenderError."""
        kept = await self.filter(pod, names)
        points = await self.prioritize(pod, kept.names) if len(kept.names) > 1 else {}
        return ExtenderVerdict(kept.names, kept.failed, kept.unresolvable, points)

    async def preempt(self, pod: PodObject, victims: Victims) -> dict[str, tuple[list[str], int]]:
        """Return the uids of the victims on each node that extenders still accept."""
        current = {
            name: ([pod["metadata"]["uid"] for pod in pods], violations) for name, (pods, violations) in victims.items()
        }
        for extender in self.settings:
            if not extender.preempt_verb or not extender.is_interested(pod) or not current:
                continue
            try:
                current = await self._preempt_with(extender, pod, victims, current)
            except ExtenderError:
                if not extender.ignorable:
                    raise
        return current

    async def _preempt_with(
        self, extender: ExtenderSettings, pod: PodObject, victims: Victims, current: Mapping[str, tuple[list[str], int]]
    ) -> dict[str, tuple[list[str], int]]:
        if extender.node_cache_capable:
            meta = {
                name: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": violations}
                for name, (uids, violations) in current.items()
            }
            body: Object = {"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": meta}
        else:
            whole = {
                name: {
                    "Pods": [victim for victim in victims[name][0] if victim["metadata"]["uid"] in uids],
                    "NumPDBViolations": violations,
                }
                for name, (uids, violations) in current.items()
            }
            body = {"Pod": pod, "NodeNameToVictims": whole, "NodeNameToMetaVictims": None}
        answer = await self._ask(extender, extender.preempt_verb, body, wire.parse_meta_victims)
        kept: dict[str, tuple[list[str], int]] = {}
        for name, (uids, violations) in answer.items():
            if not uids:
                if extender.ignorable:
                    continue
                raise ExtenderError(f'expected at least one victim pod on node "{name}"')
            kept[name] = uids, violations
        return kept

    def binder_of(self, pod: PodObject) -> ExtenderSettings | None:
        """Return the extender that binds this pod; None if the scheduler does."""
        return next(
            (extender for extender in self.settings if extender.bind_verb and extender.is_interested(pod)), None
        )

    async def bind(self, extender: ExtenderSettings, pod: PodObject, node: str) -> None:
        """Let an extender bind the pod."""
        metadata = pod["metadata"]
        body = {
            "PodName": metadata["name"],
            "PodNamespace": metadata.get("namespace", ""),
            "PodUID": metadata.get("uid", ""),
            "Node": node,
        }
        failure = await self._ask(extender, extender.bind_verb, body, wire.error_of)
        if failure:
            raise ExtenderError(failure)

    # HTTP

    def _args(self, extender: ExtenderSettings, pod: PodObject, names: Sequence[str]) -> Object:
        nodes = None if extender.node_cache_capable else [self._node(name) for name in names]
        return wire.arguments(pod, names, nodes)

    async def _ask(
        self, extender: ExtenderSettings, verb: str, body: Object, parse: Callable[[Any], _Parsed]
    ) -> _Parsed:
        """Return the answer of an extender. Raise ExtenderError if there is none, or none of this format."""
        url = f"{extender.url_prefix}/{verb}"
        try:
            with client_span(f"extender {verb}", **{"url.full": url}) as trace:
                answer = await self._outbound.request(
                    "POST",
                    url,
                    body=orjson.dumps(body),
                    headers={"Content-Type": "application/json", **trace},
                    seconds=extender.timeout,
                    tls=self._context(extender),
                    server_name=extender.tls.server_name,
                )
            if answer.status != 200:
                raise ExtenderError(f"failed {verb} with extender at URL {url}, code {answer.status}")
            return parse(orjson.loads(answer.body))
        except OutboundTimeout as error:
            raise ExtenderError(f"extender {url} did not answer within {extender.timeout:g} s") from error
        except OutboundTooLarge as error:
            raise ExtenderError(f"extender {url} sent more than {_LONGEST_ANSWER >> 20} MiB") from error
        except OutboundFailed as error:
            raise ExtenderError(f"extender {url} cannot be reached: {error}") from error
        except orjson.JSONDecodeError as error:
            raise ExtenderError(f"extender {url} did not send JSON: {error}") from error
        except wire.InvalidExtenderAnswer as error:
            raise ExtenderError(f"extender {url} sent a wrong answer: {error}") from error

    def _context(self, extender: ExtenderSettings) -> ssl.SSLContext | bool:
        known = self._contexts.get(id(extender))
        if known is None:
            known = self._contexts[id(extender)] = tls_context(extender)
        return known


class ExtenderBinder(Plugin):
    """Lets the extender with a bindVerb bind the pods that it is interested in."""

    name = EXTENDER

    def __init__(self, extenders: Extenders) -> None:
        self._extenders = extenders

    async def bind(self, cycle: Cycle, node: str) -> bool:
        pod = cycle.pod.object
        extender = self._extenders.binder_of(pod)
        if extender is None:
            return False
        try:
            await self._extenders.bind(extender, pod, node)
        except ExtenderError as error:
            raise PluginError(EXTENDER, str(error)) from error
        return True


def tls_context(extender: ExtenderSettings) -> ssl.SSLContext | bool:
    """Return how to verify an extender. Without a CA, `enableHTTPS` trusts any certificate, as in kube-scheduler."""
    tls = extender.tls
    has_ca = bool(tls.ca_file or tls.ca_data)
    if not extender.url_prefix.startswith("https:"):
        return True
    ca_file = Path(tls.ca_file) if tls.ca_file and not tls.ca_data else None
    context = client_tls(ca=tls.ca_data.decode(), ca_file=ca_file)
    if tls.insecure or (extender.uses_https and not has_ca):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    _load_certificate(context, tls)
    return context


def _load_certificate(context: ssl.SSLContext, tls: ExtenderTls) -> None:
    if tls.cert_data and tls.key_data:
        # The ssl module reads certificates only from files.
        with tempfile.TemporaryDirectory(prefix="pinnace-") as scratch:
            certificate, key = Path(scratch) / "crt", Path(scratch) / "key"
            certificate.write_bytes(tls.cert_data)
            key.touch(mode=0o600)
            key.write_bytes(tls.key_data)
            context.load_cert_chain(certificate, key)
    elif tls.cert_file:
        context.load_cert_chain(tls.cert_file, tls.key_file or None)
