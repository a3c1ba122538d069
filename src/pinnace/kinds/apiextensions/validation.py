"""Defaults and validation of custom resource definitions: names, versions, schemas and conversion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from urllib.parse import urlsplit

from pinnace.kinds.admissionregistration import webhooks
from pinnace.kinds.apiextensions.breaking_changes import breaks_between, compatibility_errors
from pinnace.kinds.apiextensions.bundles import has_unusable_bundle, validate_bundle
from pinnace.kinds.apiextensions.versions import Raw, is_old, mentions, schema_of, validate_versions, was_stored
from pinnace.kinds.validation.fields import validate_choice, validate_immutable
from pinnace.kinds.validation.review_versions import REVIEW_VERSIONS, validate_review_versions
from pinnace.model import names
from pinnace.model.clock import to_rfc3339
from pinnace.model.field_errors import FieldError, forbidden, invalid, required
from pinnace.model.objects import Object
from pinnace.model.resources import Strategy
from pinnace.schema.crd.definition import all_schemas, unknown_formats

CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
APPROVED = "api-approved.kubernetes.io"
MIXED_CASE = "may have mixed case, but should otherwise match: "

_LEAVING = {
    "type": "Terminating",
    "status": "True",
    "reason": "InstanceDeletionPending",
    "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
}


# --- before validation


def default_definition(definition: Object) -> None:
    spec = definition.setdefault("spec", {})
    said = spec.setdefault("names", {})
    kind = said.get("kind", "")
    if not said.get("singular") and kind:
        said["singular"] = kind.lower()
    if not said.get("listKind") and kind:
        said["listKind"] = f"{kind}List"
    conversion = spec.setdefault("conversion", {"strategy": "None"})
    service = ((conversion.get("webhook") or {}).get("clientConfig") or {}).get("service")
    if service is not None:
        webhooks.default_service(service)
    status = definition.setdefault("status", {})
    status.setdefault("conditions", None)  # Kubernetes sets null until the controller has a value.
    status.setdefault("acceptedNames", {"plural": "", "kind": ""})
    if not status.get("storedVersions"):
        status["storedVersions"] = _storage_versions(spec)[:1] or None


def _prepare(definition: Object, old: Object | None) -> None:
    stored = definition.setdefault("status", {}).get("storedVersions") or []
    storage = [name for name in _storage_versions(definition.get("spec", {}))[:1] if name not in stored]
    definition["status"]["storedVersions"] = [*stored, *storage] or None


def _mark(definition: Object, now: datetime) -> None:
    """Mark a definition as being deleted. It stays until its objects are deleted, and keeps its generation."""
    metadata, moment = definition["metadata"], to_rfc3339(now)
    metadata["deletionTimestamp"] = moment
    if CLEANUP not in (metadata.get("finalizers") or ()):
        metadata["finalizers"] = [*(metadata.get("finalizers") or ()), CLEANUP]
    status = definition.get("status") or {}
    others = [one for one in status.get("conditions") or () if one.get("type") != _LEAVING["type"]]
    definition["status"] = {**status, "conditions": [*others, {"lastTransitionTime": moment, **_LEAVING}]}


def _storage_versions(spec: Raw) -> list[str]:
    return [version.get("name", "") for version in spec.get("versions") or [] if version.get("storage")]


# --- errors


def validate_definition(definition: Object, old: Object | None) -> Iterator[FieldError]:
    """Return every error of a definition, alone and against the old one."""
    spec, name = definition.get("spec", {}), definition["metadata"].get("name", "")
    group, said = spec.get("group", ""), spec.get("names", {})
    before = old.get("spec", {}) if old is not None else None
    if old is None and name and name != f"{said.get('plural', '')}.{group}":
        yield invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    yield from _validate_spec(definition, before)
    if before is not None:
        if is_established(old):
            yield from validate_immutable(spec.get("scope", ""), before.get("scope", ""), "spec.scope")
            yield from validate_immutable(
                said.get("kind", ""), before.get("names", {}).get("kind", ""), "spec.names.kind"
            )
        yield from validate_immutable(group, before.get("group", ""), "spec.group")
        plural = before.get("names", {}).get("plural", "")
        yield from validate_immutable(said.get("plural", ""), plural, "spec.names.plural")
        if is_established(old) and not has_unusable_bundle(before):
            yield from validate_bundle(spec)
    status = definition.get("status", {})
    yield from _validate_resource_name(status.get("acceptedNames") or {}, "status.acceptedNames")
    yield from _validate_stored_version(status.get("storedVersions") or [], spec.get("versions") or [])
    yield from _validate_approval(definition, old)
    if spec.get("preserveUnknownFields") and not (before or {}).get("preserveUnknownFields") and not is_old(definition):
        detail = (
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        )
        yield invalid("spec.preserveUnknownFields", True, detail)
    if old is not None:
        yield from compatibility_errors(definition, old)


def _validate_status(definition: Object, old: Object | None) -> Iterator[FieldError]:
    yield from _validate_resource_name(
        (definition.get("status") or {}).get("acceptedNames") or {}, "status.acceptedNames"
    )


def is_established(definition: Raw | None) -> bool:
    conditions = ((definition or {}).get("status") or {}).get("conditions") or []
    return any(item.get("type") == "Established" and item.get("status") == "True" for item in conditions)


def _validate_spec(definition: Object, before: Raw | None) -> Iterator[FieldError]:
    spec = definition.get("spec", {})
    versions = spec.get("versions") or []
    keeps_unknown = bool(spec.get("preserveUnknownFields"))
    yield from _validate_group(spec.get("group", ""))
    if not spec.get("scope"):
        yield required("spec.scope")
    else:
        yield from validate_choice(spec["scope"], ("Cluster", "Namespaced"), "spec.scope")
    yield from _validate_missing_schema(definition, versions, before)
    schemas = [schema for version in versions if (schema := schema_of(version)) is not None]
    if keeps_unknown and any("default" in node for schema in schemas for node in all_schemas(schema)):
        yield invalid("spec.preserveUnknownFields", True, "must be false in order to use defaults in the schema")
    yield from validate_versions(definition, versions, before)
    for field in ("plural", "singular", "kind", "listKind"):
        if not spec.get("names", {}).get(field):
            yield required(f"spec.names.{field}")
    yield from _validate_resource_name(spec.get("names", {}), "spec.names")
    conversion = spec.get("conversion") or {}
    if conversion.get("strategy", "None") != "None" and keeps_unknown:
        detail = "must be None if spec.preserveUnknownFields is true"
        yield invalid("spec.conversion.strategy", conversion["strategy"], detail)
    yield from _validate_conversion(conversion, (before or {}).get("conversion") or {})


def _validate_group(group: str) -> Iterator[FieldError]:
    if not group:
        yield required("spec.group")
    elif errs := names.dns_subdomain(group):
        yield invalid("spec.group", group, ",".join(errs))
    elif "." not in group:
        yield invalid("spec.group", group, "should be a domain with at least one dot")


def _validate_missing_schema(definition: Raw, versions: Sequence[Raw], before: Raw | None) -> Iterator[FieldError]:
    if is_old(definition):
        return
    is_new_rule = before is not None and any(schema_of(one) is None for one in before.get("versions") or ())
    keeps_unknown = bool(definition["spec"].get("preserveUnknownFields"))
    for i, version in enumerate(versions):
        if schema_of(version) is not None:
            continue
        where = f"spec.versions[{i}].schema.openAPIV3Schema"
        if not is_new_rule:
            yield required(where)
        elif not keeps_unknown and version.get("served"):
            yield required(where, "because otherwise all fields are pruned")


def _validate_conversion(conversion: Raw, before: Raw) -> Iterator[FieldError]:
    path = "spec.conversion"
    strategy = conversion.get("strategy", "")
    if not strategy:
        yield required(f"{path}.strategy")
    else:
        yield from validate_choice(strategy, ("None", "Webhook"), f"{path}.strategy")
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


def _validate_resource_name(said: Raw, path: str) -> Iterator[FieldError]:
    for field in ("plural", "singular", "kind", "listKind"):
        name = said.get(field, "")
        mixed = field in ("kind", "listKind")
        if name and (errs := names.dns1035_label(name.lower() if mixed else name)):
            yield invalid(f"{path}.{field}", name, (MIXED_CASE if mixed else "") + ",".join(errs))
    for i, name in enumerate(said.get("shortNames") or []):
        if errs := names.dns1035_label(name):
            yield invalid(f"{path}.shortNames[{i}]", name, ",".join(errs))
    if said.get("kind") and said.get("kind") == said.get("listKind"):
        yield invalid(f"{path}.listKind", said["listKind"], "kind and listKind may not be the same")
    for i, name in enumerate(said.get("categories") or []):
        if errs := names.dns1035_label(name):
            yield invalid(f"{path}.categories[{i}]", name, ",".join(errs))


def _validate_stored_version(stored: Sequence[str], versions: Sequence[Raw]) -> Iterator[FieldError]:
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


def approval(definition: Raw) -> tuple[str, str]:
    """Return the approval state and its message for a definition in a Kubernetes group; empty for other groups."""
    group = definition["spec"].get("group", "")
    if not f".{group}".endswith((".k8s.io", ".kubernetes.io")):
        return "", ""
    said = (definition["metadata"].get("annotations") or {}).get(APPROVED, "")
    see = "see https://github.com/kubernetes/enhancements/pull/1111"
    if not said:
        return "MissingAnnotation", f'protected groups must have approval annotation "{APPROVED}", {see}'
    if said.startswith("unapproved"):
        return "UnapprovedAnnotation", f'not approved: "{said}"'
    if _is_url(said):
        return "ApprovedAnnotation", f"approved in {said}"
    choice = 'with either a URL or a reason starting with "unapproved"'
    return "InvalidAnnotation", f'protected groups must have approval annotation "{APPROVED}" {choice}, {see}'


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return bool(parts.scheme and parts.netloc)


def _validate_approval(definition: Object, old: Object | None) -> Iterator[FieldError]:
    state, why = approval(definition)
    if not state or (old is not None and approval(old)[0] == state):
        return
    where = f"metadata.annotations[{APPROVED}]"
    if state == "MissingAnnotation":
        yield required(where, why)
    elif state == "InvalidAnnotation":
        yield invalid(where, definition["metadata"]["annotations"][APPROVED], why)


# --- warnings


def _warnings(definition: Object, old: Object | None) -> Iterator[str]:
    for version in definition["spec"].get("versions") or ():
        schema = schema_of(version)
        if (
            schema is not None
            and mentions(schema, b'"format"')
            and not was_stored((old or {}).get("spec"), version, schema)
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
