"""How users are to be told and allowed, beside certificates, service accounts and roles, which every cluster has."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pinnace.auth.authentication.oidc import Provider
from pinnace.auth.authentication.service_accounts import ISSUER


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthSettings:
    token_file: Path | None = None
    """Static tokens: a line for each, token,user,uid,"group1,group2"."""
    providers: tuple[Provider, ...] = ()
    token_webhook: Path | None = None
    """A kubeconfig that says where to send TokenReviews."""
    authorization_webhook: Path | None = None
    """A kubeconfig that says where to send SubjectAccessReviews, asked after the roles."""
    issuer: str = ISSUER
    """Who service account tokens say has made them."""
    audiences: tuple[str, ...] = field(default=())
    """Whom tokens must be for to be good here; the issuer if empty."""
