"""The rows of reviews of a user's permissions: created, answered at once, never stored."""

from __future__ import annotations

from pinnace.kinds.rows import ASK, GA, Row

GROUP = "authorization.k8s.io"

ROWS = (
    Row(
        group=GROUP,
        name="LocalSubjectAccessReview",
        plural="localsubjectaccessreviews",
        versions=(GA,),
        verbs=ASK,
    ),
    Row(
        group=GROUP,
        name="SelfSubjectAccessReview",
        plural="selfsubjectaccessreviews",
        namespaced=False,
        versions=(GA,),
        verbs=ASK,
    ),
    Row(
        group=GROUP,
        name="SelfSubjectRulesReview",
        plural="selfsubjectrulesreviews",
        namespaced=False,
        versions=(GA,),
        verbs=ASK,
    ),
    Row(
        group=GROUP,
        name="SubjectAccessReview",
        plural="subjectaccessreviews",
        namespaced=False,
        versions=(GA,),
        verbs=ASK,
    ),
)
