"""Validation of probes and lifecycle hooks: exactly one handler each, with valid ports."""

from __future__ import annotations

import re

from pinnace.kinds.validation.fields import NEGATIVE, validate_port
from pinnace.model.field_errors import FieldError, forbidden, invalid, not_supported, required
from pinnace.model.objects import Object

_TIMES = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
_PROBE_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
_HOOK_HANDLERS = ("exec", "httpGet", "tcpSocket", "sleep")
_header_name = re.compile("[-A-Za-z0-9]+").fullmatch
_HEADER_ERROR = (
    "a valid HTTP header must consist of alphanumeric characters or '-' "
    "(e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')"
)


def validate_probe(probe: Object, name: str, path: str, errs: list[FieldError]) -> None:
    _validate_handler(probe, _PROBE_HANDLERS, None, path, errs)
    for field in _TIMES:
        value = probe.get(field)
        if value is not None and value < 0:
            errs.append(invalid(f"{path}.{field}", value, NEGATIVE))
    grace = probe.get("terminationGracePeriodSeconds")
    if grace is not None:
        if grace <= 0:
            errs.append(invalid(f"{path}.terminationGracePeriodSeconds", grace, "must be greater than 0"))
        if name == "readinessProbe":
            detail = "must not be set for readinessProbes"
            errs.append(invalid(f"{path}.terminationGracePeriodSeconds", grace, detail))
    if name != "readinessProbe" and probe.get("successThreshold", 0) != 1:
        errs.append(invalid(f"{path}.successThreshold", probe.get("successThreshold", 0), "must be 1"))


def validate_lifecycle(lifecycle: Object, grace_period: int, path: str, errs: list[FieldError]) -> None:
    for moment in ("postStart", "preStop"):
        hook = lifecycle.get(moment)
        if hook is not None:
            _validate_handler(hook, _HOOK_HANDLERS, grace_period, f"{path}.{moment}", errs)


def _validate_handler(
    holder: Object, handlers: tuple[str, ...], grace_period: int | None, path: str, errs: list[FieldError]
) -> None:
    found = [kind for kind in handlers if kind in holder]
    for kind in found[:1]:
        action = holder[kind]
        if kind == "httpGet":
            _validate_http_get(action, f"{path}.httpGet", errs)
        elif kind == "exec":
            if not action.get("command"):
                errs.append(required(f"{path}.exec.command"))
        elif kind == "sleep":
            seconds = action.get("seconds", 0)
            if grace_period is not None and not 0 <= seconds <= grace_period:
                detail = f"must be non-negative and less than terminationGracePeriodSeconds ({grace_period})"
                errs.append(invalid(f"{path}.sleep", seconds, detail))
        else:
            errs += validate_port(action.get("port", 0), f"{path}.{kind}.port")
    for extra in found[1:]:
        errs.append(forbidden(f"{path}.{extra}", "may not specify more than 1 handler type"))
    if not found:
        errs.append(required(path, "must specify a handler type"))


def _validate_http_get(action: Object, path: str, errs: list[FieldError]) -> None:
    if not action.get("path"):
        errs.append(required(f"{path}.path"))
    errs += validate_port(action.get("port", 0), f"{path}.port")
    if action.get("scheme", "") not in ("HTTP", "HTTPS"):
        errs.append(not_supported(f"{path}.scheme", action.get("scheme", ""), ["HTTP", "HTTPS"]))
    for header in action.get("httpHeaders", ()):
        if not _header_name(header.get("name", "")):
            errs.append(invalid(f"{path}.httpHeaders", header.get("name", ""), _HEADER_ERROR))
