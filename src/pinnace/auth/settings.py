"""Settings of authentication and authorization, beside the certificates, service accounts and RBAC of every cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pinnace.auth.authentication.oidc import TrustedIssuer
from pinnace.auth.authentication.service_accounts import ISSUER


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthSettings:
    token_file: Path | None = None
    """Static tokens: a line for each, token,user,uid,"group1,group2"."""
    issuers: tuple[TrustedIssuer, ...] = ()
    """OpenID Connect issuers that flags name."""
    configuration: Path | None = None
    """An AuthenticationConfiguration: issuers, and who may be anonymous."""
    anonymous: bool | None = None
    """Whether requests without credentials are served; by default they are, unless the configuration says otherwise."""
    token_webhook: Path | None = None
    """A kubeconfig that says where to send TokenReviews."""
    authorization_webhook: Path | None = None
    """A kubeconfig that says where to send SubjectAccessReviews, asked after the roles."""
    authorization_configuration: Path | None = None
    """An AuthorizationConfiguration, instead of the modes and the webhook."""
    authorization_modes: tuple[str, ...] = ()
    """Authorizers in their order; if empty, Node, RBAC, and Webhook where there is one."""
    token_keys: tuple[Path, ...] = ()
    """Further keys or certificates that verify service account tokens."""
    issuer: str = ISSUER
    """The issuer of service account tokens."""
    audiences: tuple[str, ...] = field(default=())
    """The audiences that tokens must carry; the issuer if empty."""
