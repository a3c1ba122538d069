"""authorization.k8s.io: reviews of a user's permissions, which are answered at once and never stored."""

from __future__ import annotations

from pinnace.kinds.rows import ASK, GA, Row

GROUP = "authorization.k8s.io"

_NAMES = ("LocalSubjectAccessReview", "SelfSubjectAccessReview", "SelfSubjectRulesReview", "SubjectAccessReview")

ROWS = tuple(
    Row(
        group=GROUP,
        name=name,
        plural=f"{name.lower()}s",
        namespaced=name.startswith("Local"),
        versions=(GA,),
        verbs=ASK,
    )
    for name in _NAMES
)
