"""Defaults and validation of webhook configurations, and the checks of rules and endpoints that other kinds share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import cast
from urllib.parse import urlsplit

from pinnace.kinds.admissionregistration.expressions import validate_hook_condition
from pinnace.kinds.validation.fields import validate_choice, validate_name
from pinnace.kinds.validation.review_versions import REVIEW_VERSIONS, validate_review_versions
from pinnace.model import names
from pinnace.model.field_errors import FieldError, duplicate, invalid, required, too_many
from pinnace.model.objects import NOTHING
from pinnace.model.resources import Strategy
from pinnace.model.selectors import validate_label_selector
from pinnace.model.typed_objects import (
    ApiextensionsServiceReference,
    ApiextensionsWebhookClientConfig,
    ApiregistrationServiceReference,
    MatchCondition,
    MutatingWebhook,
    MutatingWebhookConfiguration,
    NamedRuleWithOperations,
    RuleWithOperations,
    ServiceReference,
    ValidatingWebhook,
    ValidatingWebhookConfiguration,
    WebhookClientConfig,
)
from pinnace.schema.golang.text import quote

FAILURE_POLICIES = ("Fail", "Ignore")
MATCH_POLICIES = ("Equivalent", "Exact")
REINVOCATION_POLICIES = ("IfNeeded", "Never")
SCOPES = ("*", "Cluster", "Namespaced")
OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
SIDE_EFFECTS = ("None", "NoneOnDryRun", "Some", "Unknown")
NO_SIDE_EFFECTS = ("None", "NoneOnDryRun")
MAX_MATCH_CONDITIONS = 64
URL_FORM = "; desired format: https://host[/path]"

_control_character = re.compile(r"[\x00-\x1f\x7f]").search
_scheme = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*").match


def default_service(
    service: ServiceReference | ApiextensionsServiceReference | ApiregistrationServiceReference,
) -> None:
    """Set the port of a service that the API server calls: 443 unless given."""
    service.setdefault("port", 443)


def default_rules(rules: Sequence[RuleWithOperations] | Sequence[NamedRuleWithOperations]) -> None:
    for rule in rules:
        rule.setdefault("scope", "*")


def _default_configuration(
    configuration: MutatingWebhookConfiguration | ValidatingWebhookConfiguration, *, mutating: bool
) -> None:
    for hook in configuration.get("webhooks") or []:
        hook.setdefault("failurePolicy", "Fail")
        hook.setdefault("matchPolicy", "Equivalent")
        hook.setdefault("namespaceSelector", {})
        hook.setdefault("objectSelector", {})
        hook.setdefault("timeoutSeconds", 10)
        if mutating:
            cast("MutatingWebhook", hook).setdefault("reinvocationPolicy", "Never")
        default_rules(hook.get("rules") or [])
        if (service := hook.setdefault("clientConfig", {}).get("service")) is not None:
            default_service(service)


def _validate_configuration(
    configuration: MutatingWebhookConfiguration | ValidatingWebhookConfiguration,
    old: MutatingWebhookConfiguration | ValidatingWebhookConfiguration | None,
    *,
    mutating: bool,
    is_v1beta1: bool = False,
) -> Iterator[FieldError]:
    """Yield every error. v1beta1 allows any side effects, and webhooks of the same name."""
    hooks, before = configuration.get("webhooks") or [], (old or NOTHING).get("webhooks") or []
    conditions = [hook.get("matchConditions") or [] for hook in hooks]
    conditions_changed = old is None or conditions != [hook.get("matchConditions") or [] for hook in before]
    # Keep tolerating values that the stored configuration already has.
    had_none = all(hook.get("sideEffects") in NO_SIDE_EFFECTS for hook in before)
    side_effects = NO_SIDE_EFFECTS if had_none and not is_v1beta1 else SIDE_EFFECTS
    known_versions = all(_knows_review_version(hook) for hook in before if hook.get("admissionReviewVersions"))
    names_before = [hook.get("name", "") for hook in before]
    seen: set[str] = set()
    for i, hook in enumerate(hooks):
        path, name = f"webhooks[{i}]", hook.get("name", "")
        yield from _validate_hook(hook, path, side_effects=side_effects, mutating=mutating)
        if conditions_changed:
            place = f"{path}.matchConditions"
            yield from validate_match_condition(hook.get("matchConditions") or [], place, validate_hook_condition)
        versions = hook.get("admissionReviewVersions") or []
        detail = f"must specify one of {', '.join(REVIEW_VERSIONS)}"
        yield from validate_review_versions(
            versions, f"{path}.admissionReviewVersions", detail=detail, must_be_known=known_versions
        )
        if name and name in seen and len(set(names_before)) == len(names_before) and not is_v1beta1:
            yield duplicate(f"{path}.name", name)
        seen.add(name)


def _knows_review_version(hook: MutatingWebhook | ValidatingWebhook) -> bool:
    return any(version in REVIEW_VERSIONS for version in hook.get("admissionReviewVersions") or [])


def _validate_hook(
    hook: MutatingWebhook | ValidatingWebhook, path: str, *, side_effects: Sequence[str], mutating: bool
) -> Iterator[FieldError]:
    yield from _validate_qualified_hook_name(hook.get("name", ""), f"{path}.name")
    for i, rule in enumerate(hook.get("rules") or []):
        yield from validate_rule(rule, f"{path}.rules[{i}]")
    yield from validate_choice(hook.get("failurePolicy"), FAILURE_POLICIES, f"{path}.failurePolicy")
    yield from validate_choice(hook.get("matchPolicy"), MATCH_POLICIES, f"{path}.matchPolicy")
    if hook.get("sideEffects") is None:
        yield required(f"{path}.sideEffects", f"must specify one of {', '.join(side_effects)}")
    yield from validate_choice(hook.get("sideEffects"), side_effects, f"{path}.sideEffects")
    timeout = hook.get("timeoutSeconds")
    if timeout is not None and not 1 <= timeout <= 30:
        yield invalid(f"{path}.timeoutSeconds", timeout, "the timeout value must be between 1 and 30 seconds")
    yield from validate_label_selector(hook.get("namespaceSelector"), f"{path}.namespaceSelector")
    yield from validate_label_selector(hook.get("objectSelector"), f"{path}.objectSelector")
    if mutating:
        policy = cast("MutatingWebhook", hook).get("reinvocationPolicy")
        yield from validate_choice(policy, REINVOCATION_POLICIES, f"{path}.reinvocationPolicy")
    yield from validate_endpoint(hook.get("clientConfig", {}), f"{path}.clientConfig")


def _validate_qualified_hook_name(name: str, path: str) -> Iterator[FieldError]:
    if not name:
        yield required(path)
    elif errs := names.dns_subdomain(name):
        yield invalid(path, name, ",".join(errs))
    elif name.count(".") < 2:
        yield invalid(path, name, "should be a domain with at least three segments separated by dots")


def validate_rule(rule: RuleWithOperations | NamedRuleWithOperations, path: str) -> Iterator[FieldError]:
    """Validate a rule: operations on resources of groups and versions."""
    operations = rule.get("operations") or []
    if not operations:
        yield required(f"{path}.operations")
    yield from _validate_lone_star(operations, f"{path}.operations", "operations")
    for i, operation in enumerate(operations):
        yield from validate_choice(operation, OPERATIONS, f"{path}.operations[{i}]")
    for field in ("apiGroups", "apiVersions"):
        values = rule.get(field) or []
        if not values:
            yield required(f"{path}.{field}")
        yield from _validate_lone_star(
            values, f"{path}.{field}", "API groups" if field == "apiGroups" else "API versions"
        )
    for i, version in enumerate(rule.get("apiVersions") or []):
        if not version:
            yield required(f"{path}.apiVersions[{i}]")
    yield from _validate_resource(rule.get("resources") or [], f"{path}.resources")
    yield from validate_choice(rule.get("scope"), SCOPES, f"{path}.scope")


def _validate_lone_star(values: Sequence[str], path: str, plural: str) -> Iterator[FieldError]:
    if len(values) > 1 and "*" in values:
        yield invalid(path, list(values), f"if '*' is present, must not specify other {plural}")


def _validate_resource(resources: Sequence[str], path: str) -> Iterator[FieldError]:
    if not resources:
        yield required(path)
    all_subresources_of: set[str] = set()
    of_all_resources: set[str] = set()
    last_plain = ""
    for i, name in enumerate(resources):
        if not name:
            yield required(f"{path}[{i}]")
            continue
        resource, slash, subresource = name.partition("/")
        if not slash:
            last_plain = name
            continue
        if resource in all_subresources_of:
            yield invalid(f"{path}[{i}]", name, f"if '{resource}/*' is present, must not specify {name}")
        if subresource in of_all_resources:
            yield invalid(f"{path}[{i}]", name, f"if '*/{subresource}' is present, must not specify {name}")
        if subresource == "*":
            all_subresources_of.add(resource)
        if resource == "*":
            of_all_resources.add(subresource)
    if len(resources) > 1 and "*/*" in resources:
        yield invalid(path, list(resources), "if '*/*' is present, must not specify other resources")
    if "*" in resources and last_plain not in ("", "*"):  # Kubernetes checks only the last one, too.
        detail = "if '*' is present, must not specify other resources without subresources"
        yield invalid(path, list(resources), detail)


def validate_endpoint(
    client_config: WebhookClientConfig | ApiextensionsWebhookClientConfig, path: str
) -> Iterator[FieldError]:
    """Validate how a webhook is called: by a URL or through a service."""
    url, service = client_config.get("url"), client_config.get("service")
    if (url is None) == (service is None):
        yield required(path, "exactly one of url or service is required")
    elif url is not None:
        yield from _validate_url(url, f"{path}.url")
    elif service is not None:
        yield from validate_service(service, f"{path}.service")


def _validate_url(url: str, path: str) -> Iterator[FieldError]:
    if reason := _why_no_url(url):
        yield required(path, f"url must be a valid URL: parse {quote(url)}: {reason}{URL_FORM}")
        return
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    if parts.scheme != "https":
        yield invalid(path, parts.scheme, f"'https' is the only allowed URL scheme{URL_FORM}")
    if not host:
        yield invalid(path, host, f"host must be specified{URL_FORM}")
    if at:
        yield invalid(path, user, "user information is not permitted in the URL")
    if parts.fragment:
        yield invalid(path, parts.fragment, "fragments are not permitted in the URL")
    if parts.query:
        yield invalid(path, parts.query, "query parameters are not permitted in the URL")


def _why_no_url(url: str) -> str:
    """Return Go's error for an unparsable URL; empty for a valid one."""
    if _control_character(url):
        return "net/url: invalid control character in URL"
    if url.startswith(":"):
        return "missing protocol scheme"
    before_slash = url.partition("#")[0].partition("?")[0].partition("/")[0]
    scheme = _scheme(url)
    if ":" in before_slash and not (scheme and url[scheme.end() : scheme.end() + 1] == ":"):
        return "first path segment in URL cannot contain colon"
    if match := re.search(r"%(?![0-9A-Fa-f]{2}).{0,2}", url):
        return f'invalid URL escape "{match[0]}"'
    try:
        urlsplit(url)
    except ValueError as error:  # Go's word for what it finds first, else Python's.
        return "missing ']' in host" if "[" in url and "]" not in url else str(error)
    host = urlsplit(url.replace("[", "").replace("]", "")).netloc.rpartition("@")[2]
    port = host.rpartition(":")[2] if ":" in host else ""
    if port and not port.isdigit():
        return f'invalid port ":{port}" after host'
    return 'invalid character " " in host name' if " " in host else ""


def validate_service(service: ServiceReference | ApiextensionsServiceReference, path: str) -> Iterator[FieldError]:
    """Validate a reference to a service. Kubernetes mixes up the two names in these errors; clients see them so."""
    if not service.get("namespace"):
        yield required(f"{path}.name")
    if not service.get("name"):
        yield required(f"{path}.namespace")
    port = service.get("port", 443)
    if errs := names.port_number(port):
        yield invalid(f"{path}.port", port, f"port is not valid: {', '.join(errs)}")
    yield from _validate_url_path(service.get("path") or "/", f"{path}.path")


def _validate_url_path(url_path: str, path: str) -> Iterator[FieldError]:
    if url_path == "/":
        return
    if url_path == "//":
        yield invalid(path, url_path, "segment[0] may not be empty")
        return
    if not url_path.startswith("/"):
        yield invalid(path, url_path, "must start with a '/'")
    for i, step in enumerate(url_path[1:].removesuffix("/").split("/")):
        if not step:
            yield invalid(path, url_path, f"segment[{i}] may not be empty")
        else:
            yield from (invalid(path, url_path, f"segment[{i}]: {err}") for err in names.dns_subdomain(step))


def validate_match_condition(
    conditions: Sequence[MatchCondition], path: str, errors_of: Callable[[str, str], Iterable[FieldError]]
) -> Iterator[FieldError]:
    """Validate a match condition in CEL. `errors_of` returns the errors of an expression at a path."""
    if len(conditions) > MAX_MATCH_CONDITIONS:
        yield too_many(path, len(conditions), MAX_MATCH_CONDITIONS)
    seen: set[str] = set()
    for i, condition in enumerate(conditions):
        name, expression = condition.get("name", ""), condition.get("expression", "").strip()
        if not expression:
            yield required(f"{path}[{i}].expression")
        else:
            yield from errors_of(expression, f"{path}[{i}].expression")
        if not name:
            yield required(f"{path}[{i}].name")
            continue
        yield from validate_name(name, names.qualified_name, f"{path}[{i}].name")
        if name in seen:
            yield duplicate(f"{path}[{i}].name", name)
        seen.add(name)


def _strategy(*, mutating: bool, is_v1beta1: bool = False) -> Strategy:
    return Strategy(
        qualified_finalizers=False,
        default=partial(_default_configuration, mutating=mutating),
        validate=partial(_validate_configuration, mutating=mutating, is_v1beta1=is_v1beta1),
        tracks_generation=True,
        may_update_unconditionally=False,
    )


MUTATING_WEBHOOK_CONFIGURATION = _strategy(mutating=True)
OLD_MUTATING_WEBHOOK_CONFIGURATION = _strategy(mutating=True, is_v1beta1=True)
VALIDATING_WEBHOOK_CONFIGURATION = _strategy(mutating=False)
OLD_VALIDATING_WEBHOOK_CONFIGURATION = _strategy(mutating=False, is_v1beta1=True)
