"""The columns of webhooks, policies, API services and flow control."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pinnace.kinds.cells import (
    AGE,
    NAME,
    NONE,
    UNSET,
    at,
    condition,
    first_of,
    integer,
    length_of,
    number_at,
    reach,
    string,
    text,
)
from pinnace.model.objects import Object
from pinnace.model.resources import Column

_FLOW = "io.k8s.api.flowcontrol.v1"

WEBHOOK_CONFIGURATION = (
    NAME,
    integer(
        "Webhooks",
        "Webhooks indicates the number of webhooks registered in this configuration",
        length_of("webhooks"),
    ),
    AGE,
)


def _param_kind(policy: Object, now: datetime) -> str:
    kind = reach(policy, "spec", "paramKind")
    return UNSET if kind is None else f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}"


_PARAM_KIND = string(
    "ParamKind", "ParamKind specifies the kind of resources used to parameterize this policy", _param_kind
)
VALIDATING_ADMISSION_POLICY = (
    NAME,
    integer(
        "Validations",
        "Validations indicates the number of validation rules defined in this configuration",
        length_of("spec.validations"),
    ),
    _PARAM_KIND,
    AGE,
)
MUTATING_ADMISSION_POLICY = (
    NAME,
    integer(
        "Mutations",
        "Mutation indicates the number of mutations rules defined in this configuration",
        length_of("spec.mutations"),
    ),
    _PARAM_KIND,
    AGE,
)


def _param_ref(binding: Object, now: datetime) -> str:
    reference = reach(binding, "spec", "paramRef") or {}
    if reference.get("name"):
        return f"{reference.get('namespace') or '*'}/{reference['name']}"
    selector = reference.get("selector")
    return UNSET if selector is None else _go_selector(selector)


def _go_selector(selector: Object) -> str:
    """A label selector as Go's generated code prints it: this column shows it that way."""
    labels = "".join(f"{key}: {value}," for key, value in sorted((selector.get("matchLabels") or {}).items()))
    expressions = "".join(
        f"LabelSelectorRequirement{{Key:{found.get('key', '')},Operator:{found.get('operator', '')},"
        f"Values:[{' '.join(found.get('values') or ())}],}},"
        for found in selector.get("matchExpressions") or ()
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )


ADMISSION_POLICY_BINDING = (
    NAME,
    string(
        "PolicyName",
        "PolicyName indicates the policy definition which the policy binding binded to",
        at("spec.policyName"),
    ),
    string("ParamRef", "ParamRef indicates the param resource which sets the configuration param", _param_ref),
    AGE,
)


def _serving(api_service: Object, now: datetime) -> str:
    service = reach(api_service, "spec", "service")
    return "Local" if service is None else f"{service.get('namespace', '')}/{service.get('name', '')}"


def _available(api_service: Object, now: datetime) -> str:
    found = condition(api_service, "Available")
    if found is None:
        return "Unknown"
    status, reason = text(found.get("status")), found.get("reason")
    return f"{status} ({reason})" if reason and status != "True" else status


API_SERVICE = (
    NAME,
    string("Service", "The reference to the service that hosts this API endpoint.", _serving),
    string("Available", "Whether this service is available.", _available),
    AGE,
)


def _missing_level(schema: Object, now: datetime) -> str:
    found = condition(schema, "Dangling")
    return "?" if found is None else text(found.get("status"))


def flow_schema_order(schema: Object) -> tuple[int, str]:
    """In the order in which they are tried."""
    return reach(schema, "spec", "matchingPrecedence") or 0, schema["metadata"]["name"]


FLOW_SCHEMA = (
    NAME,
    string(
        "PriorityLevel",
        f"{_FLOW}.PriorityLevelConfigurationReference.name",
        at("spec.priorityLevelConfiguration.name"),
    ),
    string("MatchingPrecedence", f"{_FLOW}.FlowSchemaSpec.matchingPrecedence", number_at("spec.matchingPrecedence")),
    string(
        "DistinguisherMethod", f"{_FLOW}.FlowSchemaSpec.distinguisherMethod", at("spec.distinguisherMethod.type", NONE)
    ),
    AGE,
    string("MissingPL", "references a broken or non-existent PriorityLevelConfiguration", _missing_level),
)


def _limited(*steps: str) -> Any:
    def value(level: Object, now: datetime) -> Any:
        holder = reach(level, "spec", "limited", *steps[:-1])
        return NONE if holder is None else holder.get(steps[-1], 0)

    return value


PRIORITY_LEVEL_CONFIGURATION = (
    NAME,
    string("Type", f"{_FLOW}.PriorityLevelConfigurationSpec.type", at("spec.type")),
    string(
        "NominalConcurrencyShares",
        f"{_FLOW}.LimitedPriorityLevelConfiguration.nominalConcurrencyShares",
        _limited("nominalConcurrencyShares"),
    ),
    string("Queues", f"{_FLOW}.QueuingConfiguration.queues", _limited("limitResponse", "queuing", "queues")),
    string("HandSize", f"{_FLOW}.QueuingConfiguration.handSize", _limited("limitResponse", "queuing", "handSize")),
    string(
        "QueueLengthLimit",
        f"{_FLOW}.QueuingConfiguration.queueLengthLimit",
        _limited("limitResponse", "queuing", "queueLengthLimit"),
    ),
    AGE,
)


def _storage_versions(version: Object, now: datetime) -> str:
    found = reach(version, "status", "storageVersions") or ()
    shown = (f"{server.get('apiServerID', '')}={server.get('encodingVersion', '')}" for server in found)
    return first_of(shown, len(found))


_STORAGE_VERSION = "io.k8s.api.apiserverinternal.v1alpha1.StorageVersionStatus"
STORAGE_VERSION = (
    NAME,
    string(
        "CommonEncodingVersion",
        f"{_STORAGE_VERSION}.commonEncodingVersion",
        at("status.commonEncodingVersion", UNSET),
    ),
    string("StorageVersions", f"{_STORAGE_VERSION}.storageVersions", _storage_versions),
    AGE,
)


def _migrated(migration: Object, now: datetime) -> str:
    resource = reach(migration, "spec", "resource") or {}
    name, group = text(resource.get("resource")), resource.get("group")
    return f"{name}.{group}" if group else name


def _migration_status(migration: Object, now: datetime) -> str:
    status = "Unknown"
    for found in reach(migration, "status", "conditions") or ():
        if found.get("status") == "True" and found.get("type") in ("Running", "Failed", "Succeeded"):
            status = found["type"]
    return status


STORAGE_VERSION_MIGRATION = (
    Column("Name", "string", NAME.description, NAME.value),
    string("Resource", "GroupResource to migrate", _migrated),
    string("Status", "Status of the migration", _migration_status),
)
