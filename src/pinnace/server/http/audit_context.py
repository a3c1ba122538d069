"""What those who answer a request want to be written down about it, besides what it says itself."""

from __future__ import annotations

from dataclasses import dataclass, field

from pinnace.auth.authorization.authorizers import Decision
from pinnace.auth.users import User


@dataclass(slots=True, eq=False)
class AuditNotes:
    """Made by the auditor for a request that is written down, and left with it; others add to it."""

    impersonated: User | None = None
    """Whom the sender acted as, once that was allowed."""
    constraint: str = ""
    """The verb by which it was, if it was for some requests alone."""
    decision: Decision | None = None
    """Whether it was allowed, and why. Of what is refused before that is asked, there is none."""
    admission: dict[str, dict[str, str]] = field(default_factory=dict)
    """What the admission plug-ins said about each object: of its last attempt, if a write had to be tried again."""

    @property
    def annotations(self) -> dict[str, str]:
        """All that was said by those who decided. What was said first under a name stays."""
        merged: dict[str, str] = {}
        if self.decision is not None:
            merged["authorization.k8s.io/decision"] = "allow" if self.decision.is_allowed else "forbid"
            merged["authorization.k8s.io/reason"] = self.decision.reason
        for said in self.admission.values():
            merged |= {name: value for name, value in said.items() if name not in merged}
        return merged
