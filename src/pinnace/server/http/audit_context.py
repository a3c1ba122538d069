"""Facts about a request that authorization and admission add to its audit event."""

from __future__ import annotations

from dataclasses import dataclass, field

from pinnace.auth.authorization.authorizers import Decision
from pinnace.auth.users import User


@dataclass(slots=True, eq=False)
class AuditNotes:
    """The auditor attaches it to a request that is audited; later stages fill it in."""

    impersonated: User | None = None
    """The impersonated user, once impersonation is allowed."""
    constraint: str = ""
    """The verb that allowed it, if impersonation is constrained."""
    decision: Decision | None = None
    """The authorization decision; None if the request failed before authorization."""
    admission: dict[str, dict[str, str]] = field(default_factory=dict)
    """Annotations of admission plug-ins by object, from the last attempt if a write was retried."""

    @property
    def annotations(self) -> dict[str, str]:
        """Merge all annotations. The first value of a name wins."""
        merged: dict[str, str] = {}
        if self.decision is not None:
            merged["authorization.k8s.io/decision"] = "allow" if self.decision.is_allowed else "forbid"
            merged["authorization.k8s.io/reason"] = self.decision.reason
        for added in self.admission.values():
            merged |= {name: value for name, value in added.items() if name not in merged}
        return merged
