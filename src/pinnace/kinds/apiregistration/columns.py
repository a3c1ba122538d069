"""The columns of API services."""

from __future__ import annotations

from datetime import datetime

from pinnace.kinds.cells import AGE, NAME, condition, reach, string, text
from pinnace.model.objects import Object


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
