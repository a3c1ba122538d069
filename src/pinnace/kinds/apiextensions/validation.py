"""Defaults and validation of custom resource definitions: names, versions, schemas, conversion, and breaking changes.

Kubernetes does not check for changes that break stored objects or clients of a version. Here they are a warning, and an
error with `pinnace.dev/compatibility: strict`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple
from urllib.parse import urlsplit

from pinnace.kinds.admissionregistration import webhooks
from pinnace.kinds.apiextensions.bundles import has_unusable_bundle, validate_bundle
from pinnace.kinds.apiextensions.versions import is_old, mentions, schema_of, validate_versions, was_stored
from pinnace.kinds.validation.fields import validate_given_choice, validate_immutable
from pinnace.kinds.validation.review_versions import REVIEW_VERSIONS, validate_review_versions
from pinnace.model import names
from pinnace.model.field_errors import FieldError, forbidden, invalid, required
from pinnace.model.objects import NOTHING, AnyObject, Object
from pinnace.model.resources import Strategy
from pinnace.model.typed_objects import (
    CustomResourceConversion,
    CustomResourceDefinition,
    CustomResourceDefinitionCondition,
    CustomResourceDefinitionNames,
    CustomResourceDefinitionSpec,
    CustomResourceDefinitionVersion,
)
from pinnace.process.clock import to_rfc3339
from pinnace.schema.crd.compatibility import breaking_changes
from pinnace.schema.crd.definition import all_schemas, unknown_formats
from pinnace.schema.shape import Raw

CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
APPROVED = "api-approved.kubernetes.io"
MIXED_CASE = "may have mixed case, but should otherwise match: "

_LEAVING: CustomResourceDefinitionCondition = {
    "type": "Terminating",
    "status": "True",
    "reason": "InstanceDeletionPending",
    "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
}


# --- before validation


def default_definition(definition: Object) -> None:
    spec = definition.setdefault("spec", {})
    given_names = spec.setdefault("names", {})
    kind = given_names.get("kind", "")
    if not given_names.get("singular") and kind:
        given_names["singular"] = kind.lower()
    if not given_names.get("listKind") and kind:
        given_names["listKind"] = f"{kind}List"
    conversion = spec.setdefault("conversion", {"strategy": "None"})
    service = ((conversion.get("webhook") or {}).get("clientConfig") or {}).get("service")
    if service is not None:
        webhooks.default_service(service)
    status = definition.setdefault("status", {})
    status.setdefault("conditions", None)  # Kubernetes sets null until the controller has a value.
    status.setdefault("acceptedNames", {"plural": "", "kind": ""})
    if not status.get("storedVersions"):
        status["storedVersions"] = _storage_versions(spec)[:1] or None


def _prepare(definition: Object, old: CustomResourceDefinition | None) -> None:
    stored = definition.setdefault("status", {}).get("storedVersions") or []
    storage = [name for name in _storage_versions(definition.get("spec", {}))[:1] if name not in stored]
    definition["status"]["storedVersions"] = [*stored, *storage] or None


def _mark(definition: CustomResourceDefinition, now: datetime) -> None:
    """Mark a definition as being deleted. It stays until its objects are deleted, and keeps its generation."""
    metadata, moment = definition["metadata"], to_rfc3339(now)
    metadata["deletionTimestamp"] = moment
    if CLEANUP not in (metadata.get("finalizers") or ()):
        metadata["finalizers"] = [*(metadata.get("finalizers") or ()), CLEANUP]
    status = definition.get("status") or {}
    others = [condition for condition in status.get("conditions") or () if condition.get("type") != _LEAVING["type"]]
    definition["status"] = {**status, "conditions": [*others, {"lastTransitionTime": moment, **_LEAVING}]}


def _storage_versions(spec: CustomResourceDefinitionSpec) -> list[str]:
    return [version.get("name", "") for version in spec.get("versions") or [] if version.get("storage")]


# --- errors


def validate_definition(
    definition: CustomResourceDefinition, old: CustomResourceDefinition | None
) -> Iterator[FieldError]:
    """Return every error of a definition, alone and against the old one."""
    spec, name = definition.get("spec", {}), definition["metadata"].get("name", "")
    group, given_names = spec.get("group", ""), spec.get("names", {})
    before = old.get("spec", {}) if old is not None else None
    if old is None and name and name != f"{given_names.get('plural', '')}.{group}":
        yield invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    yield from _validate_spec(definition, before)
    if before is not None:
        if is_established(old):
            yield from validate_immutable(spec.get("scope", ""), before.get("scope", ""), "spec.scope")
            yield from validate_immutable(
                given_names.get("kind", ""), before.get("names", {}).get("kind", ""), "spec.names.kind"
            )
        yield from validate_immutable(group, before.get("group", ""), "spec.group")
        plural = before.get("names", {}).get("plural", "")
        yield from validate_immutable(given_names.get("plural", ""), plural, "spec.names.plural")
        if is_established(old) and not has_unusable_bundle(before):
            yield from validate_bundle(spec)
    status = definition.get("status", {})
    yield from _validate_resource_name(status.get("acceptedNames") or NOTHING, "status.acceptedNames")
    yield from _validate_stored_version(status.get("storedVersions") or [], spec.get("versions") or [])
    yield from _validate_approval(definition, old)
    if (
        spec.get("preserveUnknownFields")
        and not (before or NOTHING).get("preserveUnknownFields")
        and not is_old(definition)
    ):
        detail = (
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        )
        yield invalid("spec.preserveUnknownFields", True, detail)
    if old is not None:
        yield from compatibility_errors(definition, old)


def _validate_status(
    definition: CustomResourceDefinition, old: CustomResourceDefinition | None
) -> Iterator[FieldError]:
    yield from _validate_resource_name(
        (definition.get("status") or NOTHING).get("acceptedNames") or NOTHING, "status.acceptedNames"
    )


def is_established(definition: CustomResourceDefinition | None) -> bool:
    conditions = ((definition or {}).get("status") or {}).get("conditions") or []
    return any(item.get("type") == "Established" and item.get("status") == "True" for item in conditions)


def _validate_spec(
    definition: CustomResourceDefinition, before: CustomResourceDefinitionSpec | None
) -> Iterator[FieldError]:
    spec = definition.get("spec", {})
    versions = spec.get("versions") or []
    keeps_unknown = bool(spec.get("preserveUnknownFields"))
    yield from _validate_group(spec.get("group", ""))
    yield from validate_given_choice(spec.get("scope"), ("Cluster", "Namespaced"), "spec.scope")
    yield from _validate_missing_schema(definition, versions, before)
    schemas = [schema for version in versions if (schema := schema_of(version)) is not None]
    if keeps_unknown and any("default" in node for schema in schemas for node in all_schemas(schema)):
        yield invalid("spec.preserveUnknownFields", True, "must be false in order to use defaults in the schema")
    yield from validate_versions(definition, versions, before)
    for field in ("plural", "singular", "kind", "listKind"):
        if not spec.get("names", {}).get(field):
            yield required(f"spec.names.{field}")
    yield from _validate_resource_name(spec.get("names", {}), "spec.names")
    conversion = spec.get("conversion") or NOTHING
    if conversion.get("strategy", "None") != "None" and keeps_unknown:
        detail = "must be None if spec.preserveUnknownFields is true"
        yield invalid("spec.conversion.strategy", conversion["strategy"], detail)
    yield from _validate_conversion(conversion, (before or NOTHING).get("conversion") or NOTHING)


def _validate_group(group: str) -> Iterator[FieldError]:
    if not group:
        yield required("spec.group")
    elif errs := names.dns_subdomain(group):
        yield invalid("spec.group", group, ",".join(errs))
    elif "." not in group:
        yield invalid("spec.group", group, "should be a domain with at least one dot")


def _validate_missing_schema(
    definition: CustomResourceDefinition,
    versions: Sequence[CustomResourceDefinitionVersion],
    before: CustomResourceDefinitionSpec | None,
) -> Iterator[FieldError]:
    if is_old(definition):
        return
    is_new_rule = before is not None and any(schema_of(version) is None for version in before.get("versions") or ())
    keeps_unknown = bool(definition["spec"].get("preserveUnknownFields"))
    for i, version in enumerate(versions):
        if schema_of(version) is not None:
            continue
        where = f"spec.versions[{i}].schema.openAPIV3Schema"
        if not is_new_rule:
            yield required(where)
        elif not keeps_unknown and version.get("served"):
            yield required(where, "because otherwise all fields are pruned")


def _validate_conversion(
    conversion: CustomResourceConversion, before: CustomResourceConversion
) -> Iterator[FieldError]:
    path = "spec.conversion"
    strategy = conversion.get("strategy", "")
    yield from validate_given_choice(strategy, ("None", "Webhook"), f"{path}.strategy")
    webhook = conversion.get("webhook")
    if strategy != "Webhook":
        if (webhook or {}).get("clientConfig") is not None:
            yield forbidden(f"{path}.webhookClientConfig", "should not be set when strategy is not set to Webhook")
        if (webhook or {}).get("conversionReviewVersions"):
            yield forbidden(f"{path}.conversionReviewVersions", "should not be set when strategy is not set to Webhook")
        return
    client = (webhook or {}).get("clientConfig")
    if client is None:
        yield required(f"{path}.webhookClientConfig", "required when strategy is set to Webhook")
    else:
        yield from webhooks.validate_endpoint(client, f"{path}.webhookClientConfig")
    known = (before.get("webhook") or {}).get("conversionReviewVersions")
    yield from validate_review_versions(
        (webhook or {}).get("conversionReviewVersions") or [],
        f"{path}.conversionReviewVersions",
        must_be_known=not known or not set(known).isdisjoint(REVIEW_VERSIONS),
    )


def _validate_resource_name(given_names: CustomResourceDefinitionNames, path: str) -> Iterator[FieldError]:
    for field in ("plural", "singular", "kind", "listKind"):
        name = given_names.get(field, "")
        mixed = field in ("kind", "listKind")
        if name and (errs := names.dns1035_label(name.lower() if mixed else name)):
            yield invalid(f"{path}.{field}", name, (MIXED_CASE if mixed else "") + ",".join(errs))
    for i, name in enumerate(given_names.get("shortNames") or []):
        if errs := names.dns1035_label(name):
            yield invalid(f"{path}.shortNames[{i}]", name, ",".join(errs))
    if given_names.get("kind") and given_names.get("kind") == given_names.get("listKind"):
        yield invalid(f"{path}.listKind", given_names["listKind"], "kind and listKind may not be the same")
    for i, name in enumerate(given_names.get("categories") or []):
        if errs := names.dns1035_label(name):
            yield invalid(f"{path}.categories[{i}]", name, ",".join(errs))


def _validate_stored_version(
    stored: Sequence[str], versions: Sequence[CustomResourceDefinitionVersion]
) -> Iterator[FieldError]:
    path = "status.storedVersions"
    if not stored:
        yield invalid(path, None, "must have at least one stored version")
        return
    missing = {name: i for i, name in enumerate(stored)}
    for version in versions:
        name = version.get("name", "")
        if version.get("storage") and name not in missing:
            yield invalid(path, list(stored), f"must have the storage version {name}")
        missing.pop(name, None)
    for name, i in missing.items():
        detail = (
            f"missing from spec.versions; {name} was previously a storage version, and must remain in "
            f"spec.versions until a storage migration ensures no data remains persisted in {name} and removes "
            f"{name} from status.storedVersions"
        )
        yield invalid(f"{path}[{i}]", name, detail)


def approval(definition: AnyObject) -> tuple[str, str]:
    """Return the approval state and its message for a definition in a Kubernetes group; empty for other groups."""
    group = definition["spec"].get("group", "")
    if not f".{group}".endswith((".k8s.io", ".kubernetes.io")):
        return "", ""
    approval = (definition["metadata"].get("annotations") or {}).get(APPROVED, "")
    see = "see https://github.com/kubernetes/enhancements/pull/1111"
    if not approval:
        return "MissingAnnotation", f'protected groups must have approval annotation "{APPROVED}", {see}'
    if approval.startswith("unapproved"):
        return "UnapprovedAnnotation", f'not approved: "{approval}"'
    if _is_url(approval):
        return "ApprovedAnnotation", f"approved in {approval}"
    choice = 'with either a URL or a reason starting with "unapproved"'
    return "InvalidAnnotation", f'protected groups must have approval annotation "{APPROVED}" {choice}, {see}'


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return bool(parts.scheme and parts.netloc)


def _validate_approval(
    definition: CustomResourceDefinition, old: CustomResourceDefinition | None
) -> Iterator[FieldError]:
    state, why = approval(definition)
    if not state or (old is not None and approval(old)[0] == state):
        return
    where = f"metadata.annotations[{APPROVED}]"
    if state == "MissingAnnotation":
        yield required(where, why)
    elif state == "InvalidAnnotation":
        yield invalid(where, definition["metadata"]["annotations"][APPROVED], why)


# --- warnings


def _warnings(definition: CustomResourceDefinition, old: CustomResourceDefinition | None) -> Iterator[str]:
    for version in definition["spec"].get("versions") or ():
        schema = schema_of(version)
        if (
            schema is not None
            and mentions(schema, b'"format"')
            and not was_stored((old or NOTHING).get("spec"), version, schema)
        ):
            for format in unknown_formats(schema):
                yield f'unrecognized format "{format}"'
    if old is not None:
        yield from breaks_between(old, definition)


CUSTOM_RESOURCE_DEFINITION = Strategy(
    default=default_definition,
    prepare=_prepare,
    validate=validate_definition,
    validate_status=_validate_status,
    mark=_mark,
    qualified_finalizers=False,
    tracks_generation=True,
    may_update_unconditionally=False,
    warnings=_warnings,
)


GATE = "pinnace.dev/compatibility"

_NONE: Raw = {}


class Break(NamedTuple):
    """One breaking change: its version, its field, and the reason."""

    version: str
    field: str
    why: str

    def __str__(self) -> str:
        return f"{self.version} {self.field}: {self.why}" if self.field else f"{self.version}: {self.why}"


def breaks_between(old: CustomResourceDefinition, new: CustomResourceDefinition) -> Iterator[str]:
    """Return warnings of breaking changes, unless the old or new definition asks for errors instead."""
    if not _is_strict(old) and not _is_strict(new):
        for change in find_breaks(old, new):
            yield f"{change}; annotate the definition with {GATE}: strict to have such changes refused"


def compatibility_errors(new: CustomResourceDefinition, old: CustomResourceDefinition) -> Iterator[FieldError]:
    """Return breaking changes as errors if the old or new definition asks for it. The old one counts, so that leaving
    out the annotation does not bypass the check."""
    if _is_strict(old) or _is_strict(new):
        for change in find_breaks(old, new):
            yield forbidden(f"spec.versions[{change.version}]", str(change))


def find_breaks(old: CustomResourceDefinition, new: CustomResourceDefinition) -> Iterator[Break]:
    present = {version.get("name", ""): version for version in new["spec"].get("versions") or ()}
    for version in old["spec"].get("versions") or ():
        name = version.get("name", "")
        if name not in present:
            yield Break(name, "", "is removed, and its clients will find nothing")
            continue
        if version.get("served") and not present[name].get("served"):
            yield Break(name, "", "is no longer served, and its clients will find nothing")
        before, after = _schema(version), _schema(present[name])
        if before != after:
            yield from (Break(name, field, why) for field, why in breaking_changes(before, after))
        for field in ("status", "scale"):
            had = (version.get("subresources") or _NONE).get(field) is not None
            if had and (present[name].get("subresources") or _NONE).get(field) is None:
                yield Break(name, "", f"has no /{field} any more")


def _is_strict(definition: CustomResourceDefinition) -> bool:
    return (definition["metadata"].get("annotations") or {}).get(GATE) == "strict"


def _schema(version: CustomResourceDefinitionVersion) -> Raw:
    return (version.get("schema") or _NONE).get("openAPIV3Schema") or _NONE
