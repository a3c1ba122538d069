"""The roles and bindings that every cluster has: a table beside this file, brought up to date at each start.

As in Kubernetes, missing rules are added and rules that users added stay; an object whose annotation
rbac.authorization.kubernetes.io/autoupdate says "false" is left alone.
"""

from __future__ import annotations

import asyncio
import copy
import re
import uuid
from collections.abc import Coroutine, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from pinnace.auth.authorization.coverage import missing_from
from pinnace.auth.authorization.rules import aggregate_rules, rules_of
from pinnace.kinds.feature_gates.gates import FeatureGates
from pinnace.model.objects import Object
from pinnace.model.resources import Registry
from pinnace.process.clock import to_rfc3339
from pinnace.server.status.managers import ROLE_AGGREGATOR, entry, fields_of
from pinnace.serving.cache.fanout import Fanout
from pinnace.serving.write.edits import encode
from pinnace.store.store import Conflict, Store

TABLE = Path(__file__).with_suffix(".txt")
GROUP = "rbac.authorization.k8s.io"
AUTOMATIC = f"{GROUP.replace('k8s', 'kubernetes')}/autoupdate"
_BORN = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_AGGREGATE_TO = f"{GROUP}/aggregate-to-"
_PLURALS = {
    "ClusterRole": "clusterroles",
    "Role": "roles",
    "ClusterRoleBinding": "clusterrolebindings",
    "RoleBinding": "rolebindings",
}
_READ = ("get", "list", "watch")
_WRITE = ("create", "delete", "deletecollection", "patch", "update")
_VERBS = {"@read": _READ, "@write": _WRITE, "@all": tuple(sorted((*_READ, *_WRITE)))}


async def ensure_default_roles(
    registry: Registry, fanout: Fanout, store: Store, now: datetime, *, minor: str, gates: FeatureGates | None = None
) -> None:
    """Make what a minor of Kubernetes has and is missing, and complete what is there, all in one batch of writes.

    `gates` are the feature gates of the server; None for the defaults of the minor. Other servers may do the same at
    the same time: what they wrote first is looked at again.
    """
    roles = default_roles(minor, gates)
    while True:
        writes = _role_writes(registry, fanout, store, now, copy.deepcopy(roles))
        outcomes = await asyncio.gather(*writes, return_exceptions=True)
        refused = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        if not refused:
            return
        if (error := next((error for error in refused if not isinstance(error, Conflict)), None)) is not None:
            raise error
        await store.sync()


def _role_writes(
    registry: Registry, fanout: Fanout, store: Store, now: datetime, roles: list[Object]
) -> list[Coroutine[Any, Any, int]]:
    writes = []
    for wanted in roles:
        resource = registry.find(GROUP, "v1", _PLURALS[wanted["kind"]])
        assert resource is not None, "every minor has roles"
        metadata = wanted["metadata"]
        key = f"{metadata['namespace']}/{metadata['name']}" if resource.namespaced else metadata["name"]
        stored = fanout.cache(resource.prefix).entries.get(key)
        if stored is None:
            made = {"uid": str(uuid.uuid4()), "creationTimestamp": to_rfc3339(now)}
            wanted["metadata"] = {**metadata, **made, "managedFields": _managers(wanted, now)}
            writes.append(store.put(resource.prefix + key, encode(wanted, resource), expected=0))
            continue
        completed = completion(stored.decode(), wanted)
        if completed is not None:
            writes.append(store.put(resource.prefix + key, encode(completed, resource), expected=stored.revision))
    return writes


def _managers(role: Object, now: datetime) -> list[Object]:
    """Return the managedFields of a new role or binding. Aggregated rules belong to their controller."""
    if "aggregationRule" not in role:
        return [entry(role, fields_of(role, ("roleRef", "rules", "subjects")), now)]
    own = {"f:aggregationRule": {".": {}, "f:clusterRoleSelectors": {}}, **fields_of(role, ())}
    return [entry(role, {"f:rules": {}}, now, manager=ROLE_AGGREGATOR, operation="Apply"), entry(role, own, now)]


def completion(present: Object, wanted: Object) -> Object | None:
    """Return the current object with all required rules; None if it has them, or is protected from updates."""
    metadata = present["metadata"]
    if (metadata.get("annotations") or {}).get(AUTOMATIC) == "false":
        return None
    labels = {**(metadata.get("labels") or {}), **wanted["metadata"]["labels"]}
    annotations = {**wanted["metadata"]["annotations"], **(metadata.get("annotations") or {})}
    new = {**present, "metadata": {**metadata, "labels": labels, "annotations": annotations}}
    if "roleRef" in wanted:
        subjects = present.get("subjects") or []
        missing = [subject for subject in wanted.get("subjects") or () if subject not in subjects]
        if missing:
            new["subjects"] = [*subjects, *missing]
    elif "aggregationRule" in wanted:
        new["aggregationRule"] = present.get("aggregationRule") or wanted["aggregationRule"]
    else:
        more = missing_from(rules_of(present), rules_of(wanted))
        if more:
            new["rules"] = [*(present.get("rules") or ()), *(rule.on_the_wire for rule in more)]
    return new if new != present else None


def default_role(name: str, minor: str) -> Object:
    """Return one of the default cluster roles. Raise StopIteration if this minor does not have it."""
    text = TABLE.read_text()
    block = next(block for block in text.split("\n\n") if re.match(rf"ClusterRole {re.escape(name)}(?: \[|\n)", block))
    return next(obj for obj in _read(f"\n\n{block}", FeatureGates(minor)) if obj["kind"] == "ClusterRole")


def default_roles(minor: str, gates: FeatureGates | None = None) -> list[Object]:
    """Return all default roles of a Kubernetes minor, aggregated rules included."""
    objects = list(_read(TABLE.read_text(), gates or FeatureGates(minor)))
    roles = {obj["metadata"]["name"]: obj for obj in objects if obj["kind"] == "ClusterRole"}
    for name in ("view", "edit", "admin"):  # Each gathers the one before it, too.
        roles[name]["rules"] = aggregate_rules(roles[name], roles.values())
    return objects


def _read(text: str, gates: FeatureGates) -> Iterator[Object]:
    for block in text.split("\n\n")[1:]:
        first, *lines = (_in_minor(line, gates) for line in block.strip().splitlines())
        if not first:
            continue
        kind, full_name = first.split()
        namespace, _, name = full_name.rpartition("/")
        obj = _object(kind, namespace, name)
        if kind != "RoleBinding":
            obj["rules"] = []
        for line in filter(None, lines):
            words = line.split()
            match words:
                case ["gathers", group]:
                    labels = {_AGGREGATE_TO + group: "true"}
                    obj["aggregationRule"] = {"clusterRoleSelectors": [{"matchLabels": labels}]}
                case ["aggregated", "to", group]:
                    obj["metadata"]["labels"][_AGGREGATE_TO + group] = "true"
                case ["of", role]:
                    obj["roleRef"] = {"apiGroup": GROUP, "kind": "Role", "name": role}
                case ["to", *_] if kind == "RoleBinding":
                    obj["subjects"] = _subjects(line)
                case ["to", *_]:
                    binding = _object("ClusterRoleBinding", "", name)
                    if subjects := _subjects(line):
                        binding["subjects"] = subjects
                    yield {**binding, "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": name}}
                case _:
                    obj["rules"].append(_rule(line))
        yield obj


def _in_minor(line: str, gates: FeatureGates) -> str:
    """Return the line without its minor mark; empty if this minor does not have it, or its gate is off."""
    if not line.endswith("]"):
        return line
    number = int(gates.minor.removeprefix("1."))
    line, _, mark = line[:-1].partition(" [")
    match mark.replace("1.", "").split():
        case ["since", first]:
            is_there = number >= int(first)
        case ["since", first, "with", gate]:
            is_there = number >= int(first) and gates.is_on(gate)
        case ["until", last]:
            is_there = number <= int(last)
        case [first, "to", last]:
            is_there = int(first) <= number <= int(last)
        case _:
            raise ValueError(f"the table of default roles has a mark that means nothing: [{mark}]")
    return line if is_there else ""


def _object(kind: str, namespace: str, name: str) -> Object:
    metadata: Object = {"name": name, "labels": dict(_BORN), "annotations": {AUTOMATIC: "true"}}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": metadata}


def _rule(line: str) -> Object:
    verbs, *rest = (part.split() for part in line.split("|"))
    rule: Object = {"verbs": list(_VERBS.get(verbs[0], verbs))}
    if len(rest) == 1:
        return rule | {"nonResourceURLs": rest[0]}
    rule["apiGroups"] = ["" if group == "core" else group for group in rest[0]]
    rule["resources"] = rest[1]
    if len(rest) > 2:
        rule["resourceNames"] = rest[2]
    return rule


def _subjects(line: str) -> list[Object]:
    names = line.strip().removeprefix("to ")
    if names == "none":
        return []
    subjects: list[Object] = []
    for subject in names.split(", "):
        kind, name = subject.split()
        if kind == "ServiceAccount":
            namespace, _, name = name.partition("/")
            subjects.append({"kind": kind, "name": name, "namespace": namespace})
        else:
            subjects.append({"apiGroup": GROUP, "kind": kind, "name": name})
    return subjects
