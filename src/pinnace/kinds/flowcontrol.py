"""flowcontrol.apiserver.k8s.io: FlowSchemas and PriorityLevelConfigurations, which divide the server's capacity.

The betas had other names and defaults of concurrency shares.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Literal, cast

from pinnace.kinds.cells import AGE, NAME, NONE, at, condition, number_at, reach, string, text
from pinnace.kinds.golang.printing import GoStruct
from pinnace.kinds.rows import GA, STATUS, Row, Version
from pinnace.kinds.validation.fields import validate_name, validate_range
from pinnace.model import names
from pinnace.model.field_errors import FieldError, duplicate, forbidden, invalid, not_supported, required
from pinnace.model.objects import Object
from pinnace.model.resources import Strategy
from pinnace.model.typed_objects import (
    ExemptPriorityLevelConfiguration,
    FlowcontrolSubject,
    FlowSchema,
    LimitedPriorityLevelConfiguration,
    LimitResponse,
    NonResourcePolicyRule,
    PolicyRulesWithSubjects,
    PriorityLevelConfiguration,
    PriorityLevelConfigurationSpec,
    QueuingConfiguration,
    ResourcePolicyRule,
    ServiceAccountSubject,
)

_FLOW = "io.k8s.api.flowcontrol.v1"


def _missing_level(schema: FlowSchema, now: datetime) -> str:
    dangling = condition(schema, "Dangling")
    return "?" if dangling is None else text(dangling.get("status"))


def _flow_schema_order(schema: FlowSchema) -> tuple[int, str]:
    """Sort by precedence, the order in which the server tries flow schemas."""
    return reach(schema, "spec", "matchingPrecedence") or 0, schema["metadata"]["name"]


def _limited_field(*steps: str) -> Any:
    def value(level: PriorityLevelConfiguration, now: datetime) -> Any:
        holder = reach(level, "spec", "limited", *steps[:-1])
        return NONE if holder is None else holder.get(steps[-1], 0)

    return value


PRESERVE_ZERO_SHARES = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares"


def _rename_shares(level: Object, before: str, after: str) -> Object:
    limited = (level.get("spec") or {}).get("limited")
    if isinstance(limited, dict) and before in limited:
        level["spec"]["limited"] = {after if name == before else name: value for name, value in limited.items()}
    return level


def _shares_to_nominal(level: Object) -> Object:
    return _rename_shares(level, "assuredConcurrencyShares", "nominalConcurrencyShares")


def _shares_from_nominal(level: Object) -> Object:
    return _rename_shares(level, "nominalConcurrencyShares", "assuredConcurrencyShares")


def _zero_shares_to_v1(level: Object) -> Object:
    """Convert the annotation by which v1beta3 marks zero shares; no other version shows it."""
    metadata = level.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    kept = annotations.pop(PRESERVE_ZERO_SHARES, None) is not None
    if kept and not annotations:
        metadata.pop("annotations", None)
    limited = (level.get("spec") or {}).get("limited")
    if isinstance(limited, dict) and not limited.get("nominalConcurrencyShares"):
        limited["nominalConcurrencyShares"] = 0 if kept else 30
    return level


def _zero_shares_from_v1(level: Object) -> Object:
    limited = (level.get("spec") or {}).get("limited")
    if isinstance(limited, dict) and limited.get("nominalConcurrencyShares") == 0:
        annotations = level.setdefault("metadata", {}).setdefault("annotations", {})
        annotations[PRESERVE_ZERO_SHARES] = ""
    return level


VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch")
MAX_PRECEDENCE = 10000
MAX_QUEUES = 10_000_000
MAX_HASH_BITS = 60
NOT_NEGATIVE = "must be a non-negative integer"
EVERYTHING: Object = {
    "resourceRules": [
        {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": True, "namespaces": ["*"]}
    ],
    "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
}


def _groups(*group_names: str) -> list[Object]:
    return [{"kind": "Group", "group": {"name": name}} for name in group_names]


MANDATORY_FLOW_SCHEMAS: Mapping[str, Object] = {
    "exempt": {
        "priorityLevelConfiguration": {"name": "exempt"},
        "matchingPrecedence": 1,
        "rules": [{"subjects": _groups("system:masters"), **EVERYTHING}],
    },
    "catch-all": {
        "priorityLevelConfiguration": {"name": "catch-all"},
        "matchingPrecedence": MAX_PRECEDENCE,
        "distinguisherMethod": {"type": "ByUser"},
        "rules": [{"subjects": _groups("system:unauthenticated", "system:authenticated"), **EVERYTHING}],
    },
}
MANDATORY_PRIORITY_LEVELS: Mapping[str, Object] = {
    "exempt": {"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}},
    "catch-all": {
        "type": "Limited",
        "limited": {"nominalConcurrencyShares": 5, "limitResponse": {"type": "Reject"}, "lendablePercent": 0},
    },
}

_NAMED = GoStruct("Name=''")
_FLOW_SCHEMA_SPEC = GoStruct(
    "PriorityLevelConfiguration MatchingPrecedence=0 DistinguisherMethod Rules",
    PriorityLevelConfiguration=_NAMED,
    DistinguisherMethod=GoStruct("Type=''"),
    Rules=GoStruct(
        "Subjects ResourceRules NonResourceRules",
        Subjects=GoStruct(
            "Kind='' User Group ServiceAccount",
            User=_NAMED,
            Group=_NAMED,
            ServiceAccount=GoStruct("Namespace='' Name=''"),
        ),
        ResourceRules=GoStruct("Verbs APIGroups:apiGroups Resources ClusterScope=false Namespaces"),
        NonResourceRules=GoStruct("Verbs NonResourceURLs"),
    ),
    inline=("PriorityLevelConfiguration",),
)
_PRIORITY_LEVEL_SPEC = GoStruct(
    "Type='' Limited Exempt",
    Limited=GoStruct(
        "NominalConcurrencyShares=0 LimitResponse LendablePercent BorrowingLimitPercent",
        LimitResponse=GoStruct("Type='' Queuing", Queuing=GoStruct("Queues=0 HandSize=0 QueueLengthLimit=0")),
        inline=("LimitResponse",),
    ),
    Exempt=GoStruct("NominalConcurrencyShares LendablePercent"),
)

# --- flow schemas


def _default_flow_schema(schema: Object) -> None:
    spec = schema.setdefault("spec", {})
    if not spec.get("matchingPrecedence"):
        spec["matchingPrecedence"] = 1000
    spec.setdefault("priorityLevelConfiguration", {}).setdefault("name", "")
    schema.setdefault("status", {})


def _validate_flow_schema(schema: FlowSchema, old: FlowSchema | None) -> Iterator[FieldError]:
    spec, name = schema.get("spec", {}), schema["metadata"].get("name", "")
    yield from _validate_precedence(spec.get("matchingPrecedence", 0), name, "spec.matchingPrecedence")
    method = spec.get("distinguisherMethod")
    if method is not None and method.get("type") not in ("ByNamespace", "ByUser"):
        view = {"Type": method.get("type", "")}
        yield not_supported("spec.distinguisherMethod.type", view, ["ByNamespace", "ByUser"])
    level = spec.get("priorityLevelConfiguration", {}).get("name", "")
    if level:
        yield from validate_name(level, names.dns_subdomain, "spec.priorityLevelConfiguration.name")
    else:
        yield required("spec.priorityLevelConfiguration.name", "must reference a priority level")
    for i, rule in enumerate(spec.get("rules") or []):
        yield from _validate_flow_rule(rule, f"spec.rules[{i}]")
    if (fixed := MANDATORY_FLOW_SCHEMAS.get(name)) is not None:
        view = _FLOW_SCHEMA_SPEC.view(spec)
        if view != _FLOW_SCHEMA_SPEC.view(fixed):
            yield invalid("spec", view, f"spec of '{name}' must equal the fixed value")
    yield from _validate_status(schema, old)


def _validate_precedence(precedence: int, name: str, path: str) -> Iterator[FieldError]:
    if precedence <= 0:
        yield invalid(path, precedence, "must be a positive value")
    if precedence > MAX_PRECEDENCE:
        yield invalid(path, precedence, f"must not be greater than {MAX_PRECEDENCE}")
    if precedence == 1 and name != "exempt":
        yield invalid(path, precedence, "only the schema named 'exempt' may have matchingPrecedence 1")


def _validate_flow_rule(rule: PolicyRulesWithSubjects, path: str) -> Iterator[FieldError]:
    subjects = rule.get("subjects") or []
    if not subjects:
        yield required(f"{path}.subjects", "subjects must contain at least one value")
    for i, subject in enumerate(subjects):
        yield from _validate_subject(subject, f"{path}.subjects[{i}]")
    resource_rules, url_rules = rule.get("resourceRules") or [], rule.get("nonResourceRules") or []
    if not resource_rules and not url_rules:
        yield required(path, "at least one of resourceRules and nonResourceRules has to be non-empty")
    for i, resource_rule in enumerate(resource_rules):
        yield from _validate_resource_rule(resource_rule, f"{path}.resourceRules[{i}]")
    for i, url_rule in enumerate(url_rules):
        yield from _validate_url_rule(url_rule, f"{path}.nonResourceRules[{i}]")


_SUBJECT_FIELDS: Mapping[str, Literal["serviceAccount", "user", "group"]] = {
    "ServiceAccount": "serviceAccount",
    "User": "user",
    "Group": "group",
}


def _validate_subject(subject: FlowcontrolSubject, path: str) -> Iterator[FieldError]:
    kind = subject.get("kind", "")
    if kind not in _SUBJECT_FIELDS:
        yield not_supported(f"{path}.kind", kind, ["Group", "ServiceAccount", "User"])
        return
    field = _SUBJECT_FIELDS[kind]
    if (who := subject.get(field)) is None:
        yield required(f"{path}.{field}", f"{field} is required when subject kind is '{kind}'")
    else:
        yield from _validate_named_subject(cast("ServiceAccountSubject", who), f"{path}.{field}", kind)
    for other_kind, other in _SUBJECT_FIELDS.items():
        if other_kind != kind and subject.get(other) is not None:
            yield forbidden(f"{path}.{other}", f"{other} is forbidden when subject kind is not '{other_kind}'")


def _validate_named_subject(who: ServiceAccountSubject, path: str, kind: str) -> Iterator[FieldError]:
    """Check a subject of any kind: users and groups have no namespace."""
    is_account = kind == "ServiceAccount"
    if not who.get("name"):
        yield required(f"{path}.name")
    elif is_account and who["name"] != "*":
        yield from validate_name(who["name"], names.dns_subdomain, f"{path}.name")
    if is_account and who.get("namespace"):
        yield from validate_name(who["namespace"], names.dns_label, f"{path}.namespace")
    elif is_account:
        yield required(f"{path}.namespace", "must specify namespace for service account")


def _validate_verb(verbs: Sequence[str], path: str) -> Iterator[FieldError]:
    if not verbs:
        yield required(path, "verbs must contain at least one value")
    elif "*" in verbs:
        yield from _validate_lone_star(verbs, path, "verbs")
    elif not set(verbs) <= set(VERBS):
        yield not_supported(path, list(verbs), VERBS)


def _validate_lone_star(values: Sequence[str], path: str, plural: str) -> Iterator[FieldError]:
    if len(values) > 1 and "*" in values:
        yield invalid(path, list(values), f"if '*' is present, must not specify other {plural}")


def _validate_resource_rule(rule: ResourcePolicyRule, path: str) -> Iterator[FieldError]:
    yield from _validate_verb(rule.get("verbs") or [], f"{path}.verbs")
    groups, resources = rule.get("apiGroups") or [], rule.get("resources") or []
    for field, values, singular, many in (
        ("apiGroups", groups, "api group", "api groups"),
        ("resources", resources, "resource", "resources"),
    ):
        if not values:
            yield required(f"{path}.{field}", f"resource rules must supply at least one {singular}")
        yield from _validate_lone_star(values, f"{path}.{field}", many)
    namespaces = rule.get("namespaces") or []
    if not namespaces and not rule.get("clusterScope"):
        detail = "resource rules that are not cluster scoped must supply at least one namespace"
        yield required(f"{path}.namespaces", detail)
    elif "*" in namespaces:
        yield from _validate_lone_star(namespaces, f"{path}.namespaces", "namespaces")
    else:
        for i, namespace in enumerate(namespaces):
            for err in names.dns_label(namespace):
                detail = f"each member of this list must be '*' or a DNS-1123 label; {err}"
                yield invalid(f"{path}.namespaces[{i}]", namespace, detail)


def _validate_url_rule(rule: NonResourcePolicyRule, path: str) -> Iterator[FieldError]:
    yield from _validate_verb(rule.get("verbs") or [], f"{path}.verbs")
    urls = rule.get("nonResourceURLs") or []
    if not urls:
        yield required(f"{path}.nonResourceURLs", "nonResourceURLs must contain at least one value")
    elif "*" in urls:
        yield from _validate_lone_star(urls, f"{path}.nonResourceURLs", "non-resource URLs")
    else:
        for i, url in enumerate(urls):
            if err := _check_url(url):
                yield invalid(f"{path}.nonResourceURLs[{i}]", url, err)


def _check_url(url: str) -> str:
    if not url:
        return "must not be empty"
    if url == "/":
        return ""
    if not url.startswith("/"):
        return "must start with slash"
    if " " in url:
        return "must not contain white-space"
    if "//" in url:
        return "must not contain double slash"
    stars = url.count("*")
    return "wildcard can only do suffix matching" if stars > 1 or (stars == 1 and not url.endswith("/*")) else ""


def _validate_status(
    obj: FlowSchema | PriorityLevelConfiguration, old: FlowSchema | PriorityLevelConfiguration | None
) -> Iterator[FieldError]:
    seen: set[str] = set()
    for i, item in enumerate(obj.get("status", {}).get("conditions") or []):
        type_ = item.get("type", "")
        if type_ in seen:
            yield duplicate(f"status.conditions[{i}].type", type_)
        seen.add(type_)
        if not type_:
            yield required(f"status.conditions[{i}].type")


# --- priority levels


def _default_priority_level(level: Object) -> None:
    spec = level.setdefault("spec", {})
    if (exempt := spec.get("exempt")) is not None:
        exempt.setdefault("nominalConcurrencyShares", 0)
        exempt.setdefault("lendablePercent", 0)
    if (limited := spec.get("limited")) is not None:
        if limited.get("nominalConcurrencyShares") is None:
            limited["nominalConcurrencyShares"] = 30
        limited.setdefault("lendablePercent", 0)
        response = limited.setdefault("limitResponse", {})
        if (queuing := response.get("queuing")) is not None:
            for field, value in (("queues", 64), ("handSize", 8), ("queueLengthLimit", 50)):
                queuing[field] = queuing.get(field) or value
    level.setdefault("status", {})


def _validate_priority_level(
    level: PriorityLevelConfiguration, old: PriorityLevelConfiguration | None
) -> Iterator[FieldError]:
    spec, name = level.get("spec", {}), level["metadata"].get("name", "")
    if PRESERVE_ZERO_SHARES in (level["metadata"].get("annotations") or {}):
        yield forbidden("metadata.annotations", f"annotation '{PRESERVE_ZERO_SHARES}' is forbidden")
    type_, limited, exempt = spec.get("type", ""), spec.get("limited"), spec.get("exempt")
    if (name == "exempt") != (type_ == "Exempt"):
        yield invalid("spec.type", type_, "must be 'Exempt' if and only if `name` is 'exempt'")
    if type_ == "Exempt":
        yield from _validate_share(exempt or {}, "spec.exempt")
        if limited is not None:
            yield forbidden("spec.limited")
    elif type_ == "Limited":
        if exempt is not None:
            yield forbidden("spec.exempt")
        if limited is None:
            yield required("spec.limited")
        else:
            yield from _validate_limited(limited, "spec.limited")
    elif type_:
        yield not_supported("spec.type", type_, ["Exempt", "Limited"])
        if limited is not None:
            yield forbidden("spec.limited")
    else:
        yield required("spec.type")
    yield from _validate_mandatory_level(spec, name)
    yield from _validate_status(level, old)


def _validate_share(
    config: LimitedPriorityLevelConfiguration | ExemptPriorityLevelConfiguration, path: str
) -> Iterator[FieldError]:
    shares = config.get("nominalConcurrencyShares", 0)
    if shares < 0:
        yield invalid(f"{path}.nominalConcurrencyShares", shares, NOT_NEGATIVE)
    yield from validate_range(config.get("lendablePercent"), 0, 100, f"{path}.lendablePercent")


def _validate_limited(limited: LimitedPriorityLevelConfiguration, path: str) -> Iterator[FieldError]:
    shares, *lendable = _validate_split(limited, path)
    yield from shares
    yield from _validate_limit_response(limited.get("limitResponse", {}), f"{path}.limitResponse")
    for errs in lendable:
        yield from errs
    borrowing = limited.get("borrowingLimitPercent")
    if borrowing is not None and borrowing < 0:
        yield invalid(f"{path}.borrowingLimitPercent", borrowing, f"if specified, {NOT_NEGATIVE}")


def _validate_split(limited: LimitedPriorityLevelConfiguration, path: str) -> tuple[list[FieldError], list[FieldError]]:
    """Return the errors that Kubernetes puts before those of the response (shares), and those that it puts after."""
    errs = list(_validate_share(limited, path))
    first = [err for err in errs if err.field.endswith("Shares")]
    return first, [err for err in errs if err not in first]


def _validate_limit_response(response: LimitResponse, path: str) -> Iterator[FieldError]:
    type_, queuing = response.get("type", ""), response.get("queuing")
    if type_ == "Queue":
        if queuing is None:
            yield required(f"{path}.queuing")
        else:
            yield from _validate_queuing(queuing, f"{path}.queuing")
    elif type_:
        if type_ != "Reject":
            yield not_supported(f"{path}.type", type_, ["Queue", "Reject"])
        if queuing is not None:
            yield forbidden(f"{path}.queuing")
    else:
        yield required(f"{path}.type")


def _validate_queuing(queuing: QueuingConfiguration, path: str) -> Iterator[FieldError]:
    queues, hand = queuing.get("queues", 0), queuing.get("handSize", 0)
    if queuing.get("queueLengthLimit", 0) <= 0:
        yield invalid(f"{path}.queueLengthLimit", queuing.get("queueLengthLimit", 0), "must be positive")
    if queues <= 0:
        yield invalid(f"{path}.queues", queues, "must be positive")
    elif queues > MAX_QUEUES:
        yield invalid(f"{path}.queues", queues, f"must not be greater than {MAX_QUEUES}")
    if hand <= 0:
        yield invalid(f"{path}.handSize", hand, "must be positive")
    elif hand > queues:
        yield invalid(f"{path}.handSize", hand, f"should not be greater than queues ({queues})")
    elif math.ceil(math.log2(queues) * hand) > MAX_HASH_BITS:
        detail = (
            f"required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {MAX_HASH_BITS}"
        )
        yield invalid(f"{path}.handSize", hand, detail)


def _validate_mandatory_level(spec: PriorityLevelConfigurationSpec, name: str) -> Iterator[FieldError]:
    if (fixed := MANDATORY_PRIORITY_LEVELS.get(name)) is None:
        return
    view = _PRIORITY_LEVEL_SPEC.view(spec)
    wanted = _PRIORITY_LEVEL_SPEC.view(fixed)
    if name == "exempt":
        if {**view, "Exempt": None} != {**wanted, "Exempt": None}:
            detail = f"spec of '{name}' except the 'spec.exempt' field must equal the fixed value"
            yield invalid("spec", view, detail)
    elif view != wanted:
        yield invalid("spec", view, f"spec of '{name}' must equal the fixed value")


GROUP = "flowcontrol.apiserver.k8s.io"
_v1beta1 = partial(Version, "v1beta1", deprecated="1.23", removed="1.26", replacement=f"{GROUP}/v1beta3")
_v1beta2 = partial(Version, "v1beta2", deprecated="1.26", removed="1.29", replacement=f"{GROUP}/v1beta3")
_v1beta3 = partial(Version, "v1beta3", deprecated="1.29", removed="1.32", replacement=f"{GROUP}/v1")

ROWS = (
    Row(
        group=GROUP,
        name="FlowSchema",
        plural="flowschemas",
        columns=(
            NAME,
            string(
                "PriorityLevel",
                f"{_FLOW}.PriorityLevelConfigurationReference.name",
                at("spec.priorityLevelConfiguration.name"),
            ),
            string(
                "MatchingPrecedence", f"{_FLOW}.FlowSchemaSpec.matchingPrecedence", number_at("spec.matchingPrecedence")
            ),
            string(
                "DistinguisherMethod",
                f"{_FLOW}.FlowSchemaSpec.distinguisherMethod",
                at("spec.distinguisherMethod.type", NONE),
            ),
            AGE,
            string("MissingPL", "references a broken or non-existent PriorityLevelConfiguration", _missing_level),
        ),
        row_order=_flow_schema_order,
        namespaced=False,
        versions=(GA, _v1beta3(), _v1beta2(), _v1beta1()),
        subresources=(STATUS,),
        strategy=Strategy(
            default=_default_flow_schema,
            validate=_validate_flow_schema,
            validate_status=_validate_status,
            tracks_generation=True,
        ),
    ),
    Row(
        group=GROUP,
        name="PriorityLevelConfiguration",
        plural="prioritylevelconfigurations",
        columns=(
            NAME,
            string("Type", f"{_FLOW}.PriorityLevelConfigurationSpec.type", at("spec.type")),
            string(
                "NominalConcurrencyShares",
                f"{_FLOW}.LimitedPriorityLevelConfiguration.nominalConcurrencyShares",
                _limited_field("nominalConcurrencyShares"),
            ),
            string(
                "Queues", f"{_FLOW}.QueuingConfiguration.queues", _limited_field("limitResponse", "queuing", "queues")
            ),
            string(
                "HandSize",
                f"{_FLOW}.QueuingConfiguration.handSize",
                _limited_field("limitResponse", "queuing", "handSize"),
            ),
            string(
                "QueueLengthLimit",
                f"{_FLOW}.QueuingConfiguration.queueLengthLimit",
                _limited_field("limitResponse", "queuing", "queueLengthLimit"),
            ),
            AGE,
        ),
        namespaced=False,
        versions=(
            GA,
            _v1beta3(
                to_stored=_zero_shares_to_v1,
                from_stored=_zero_shares_from_v1,
            ),
            _v1beta2(
                to_stored=_shares_to_nominal,
                from_stored=_shares_from_nominal,
            ),
            _v1beta1(
                to_stored=_shares_to_nominal,
                from_stored=_shares_from_nominal,
            ),
        ),
        subresources=(STATUS,),
        strategy=Strategy(
            default=_default_priority_level,
            validate=_validate_priority_level,
            validate_status=_validate_status,
            tracks_generation=True,
        ),
    ),
)
