"""The names of the cluster and their records, owner by owner, as encoded answers.

The zone knows which names exist: a name without records of a type differs from a name that does not exist. Answers
are encoded once and kept until something changes.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Hashable, Iterable
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

from pinnace.network.dns.wire import (
    DnsAnswer,
    DnsQuery,
    RecordType,
    ResponseCode,
    address_data,
    authority_data,
    encode_name,
    encode_own_record,
    encode_record,
    name_of,
    text_data,
)

TTL = 5
VERSION = "1.1.0"
"""The version of Kubernetes' DNS specification."""
_MOST_ANSWERS = 20_000
_LONGEST_CHAIN = 8


class DnsRecord(NamedTuple):
    """One record: its name in lower case without the last dot, and its encoded data."""

    name: str
    kind: RecordType
    data: bytes
    target: str = ""
    """The name that a CNAME leads to."""


class Zone:
    """Set the records of each owner, and answer queries."""

    def __init__(self, domain: str = "cluster.local") -> None:
        self._domain = domain
        self._reverse = ("in-addr.arpa", "ip6.arpa")
        self._records: dict[tuple[str, int], dict[DnsRecord, int]] = {}
        self._names: Counter[str] = Counter()
        self._owners: dict[Hashable, tuple[DnsRecord, ...]] = {}
        self._answers: dict[tuple[bytes, int], DnsAnswer] = {}
        self._serial = 1
        version = DnsRecord(f"dns-version.{domain}", RecordType.TXT, text_data(VERSION))
        server = DnsRecord(f"ns.dns.{domain}", RecordType.A, address_data("127.0.0.1"))
        self.set("zone", [version, server])
        self._names[f"pod.{domain}"] += 1

    def set(self, owner: Hashable, records: Iterable[DnsRecord]) -> None:
        """Replace the records of an owner; with none, forget it."""
        wanted = tuple(records)
        had = self._owners.pop(owner, ())
        if wanted:
            self._owners[owner] = wanted
        if wanted == had:
            return
        for record in had:
            self._remove(record)
        for record in wanted:
            self._add(record)
        self._answers.clear()
        self._serial += 1

    def answer(self, query: DnsQuery) -> DnsAnswer:
        """Answer a query. Several records come in an order that changes, so that clients spread."""
        question = query.question.lower()
        key = (question, query.kind)
        answer = self._answers.get(key)
        if answer is None:
            answer = self._find(name_of(question), query.kind)
            if len(self._answers) >= _MOST_ANSWERS:
                self._answers.clear()
            self._answers[key] = answer
        if len(answer.records) > 1 and answer.is_rotated:
            return answer.rotate(random.randrange(len(answer.records)))
        return answer

    def _find(self, name: str, kind: int) -> DnsAnswer:
        zone = self._zone_of(name)
        if not zone:
            # A name such as web or web.default.svc ends here after all search domains: it does not exist. Others may
            # exist elsewhere.
            is_own = "." not in name or name.endswith(".svc")
            code = ResponseCode.NAME_ERROR if is_own else ResponseCode.REFUSED
            return DnsAnswer(code, is_authoritative=False)
        records, is_chain = self._follow(name, kind)
        if records:
            return DnsAnswer(ResponseCode.NO_ERROR, records, is_rotated=not is_chain)
        exists = name in self._names or name == zone or bool(self._pod_address(name))
        authority = encode_record(
            encode_name(zone), RecordType.SOA, TTL, authority_data(self._domain, self._serial, TTL)
        )
        if name == zone and kind == RecordType.SOA:
            return DnsAnswer(ResponseCode.NO_ERROR, (authority,))
        code = ResponseCode.NO_ERROR if exists else ResponseCode.NAME_ERROR
        return DnsAnswer(code, authority=(authority,))

    def _follow(self, name: str, kind: int) -> tuple[tuple[bytes, ...], bool]:
        """Follow the CNAME records of a name. Return all records on the way, and whether there was a CNAME."""
        records: list[bytes] = []
        for _ in range(_LONGEST_CHAIN):
            here = self._of(name, kind)
            aliases = self._of(name, RecordType.CNAME) if kind != RecordType.CNAME else []
            owner = encode_name(name) if records else b""
            for record in here or aliases:
                whole = (
                    encode_record(owner, record.kind, TTL, record.data)
                    if owner
                    else encode_own_record(record.kind, TTL, record.data)
                )
                records.append(whole)
            if here or not aliases:
                return tuple(records), bool(owner)
            name = aliases[0].target
        return tuple(records), True

    def _of(self, name: str, kind: int) -> list[DnsRecord]:
        if kind in (RecordType.A, RecordType.AAAA) and (address := self._pod_address(name)):
            own = RecordType.AAAA if ":" in address else RecordType.A
            return [DnsRecord(name, own, address_data(address))] if own == kind else []
        return list(self._records.get((name, kind), ()))

    def _pod_address(self, name: str) -> str:
        """Return the address of a pod that is named by it, such as 10-244-0-7.NAMESPACE.pod.cluster.local, or empty."""
        if not name.endswith(f".pod.{self._domain}"):
            return ""
        labels = name.removesuffix(f".pod.{self._domain}").split(".")
        if len(labels) != 2 or f"{labels[1]}.svc.{self._domain}" not in self._names:
            return ""
        for parse, sign in ((IPv4Address, "."), (IPv6Address, ":")):
            with contextlib.suppress(ValueError):
                return str(parse(labels[0].replace("-", sign)))
        return ""

    def _zone_of(self, name: str) -> str:
        for zone in (self._domain, *self._reverse):
            if name == zone or name.endswith(f".{zone}"):
                return zone
        return ""

    def _add(self, record: DnsRecord) -> None:
        some = self._records.setdefault((record.name, record.kind), {})
        some[record] = some.get(record, 0) + 1
        self._names.update(_ancestors(record.name))

    def _remove(self, record: DnsRecord) -> None:
        some = self._records[record.name, record.kind]
        some[record] -= 1
        if not some[record]:
            del some[record]
        if not some:
            del self._records[record.name, record.kind]
        for name in _ancestors(record.name):
            self._names[name] -= 1
            if not self._names[name]:
                del self._names[name]


def _ancestors(name: str) -> list[str]:
    """Yield the name and its parents, which exist because it does."""
    labels = name.split(".")
    return [".".join(labels[place:]) for place in range(len(labels))]
