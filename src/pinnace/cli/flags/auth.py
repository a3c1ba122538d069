"""The flags of `pinnace up` for authentication and authorization."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pinnace.auth.authentication.oidc import ClaimMapping, TrustedIssuer, issuer_of_flags
from pinnace.auth.authentication.service_accounts import ISSUER
from pinnace.auth.settings import AuthSettings
from pinnace.cli.failure import fail
from pinnace.cli.flags.values import split_list

_DEFAULT_CLAIM = "sub"


def auth_settings(
    *,
    token_auth_file: Annotated[
        Path | None, typer.Option(help='Static tokens: lines of token,user,uid,"group1,group2".', show_default=False)
    ] = None,
    authentication_config: Annotated[
        Path | None,
        typer.Option(
            help="An AuthenticationConfiguration: OpenID Connect issuers with CEL, and who may be anonymous. It takes "
            "effect again when it is saved.",
            show_default=False,
        ),
    ] = None,
    anonymous_auth: Annotated[
        bool | None,
        typer.Option(
            "--anonymous-auth/--no-anonymous-auth", help="Serve requests without credentials.", show_default="yes"
        ),
    ] = None,
    oidc_issuer_url: Annotated[
        str, typer.Option(help="Accept the tokens of this OpenID Connect issuer.", show_default=False)
    ] = "",
    oidc_client_id: Annotated[
        str, typer.Option(help="The audience that OIDC tokens must carry.", show_default=False)
    ] = "",
    oidc_username_claim: Annotated[str, typer.Option(help="The claim with the user's name.")] = _DEFAULT_CLAIM,
    oidc_username_prefix: Annotated[
        str, typer.Option(help="The prefix of users' names; - for none.", show_default="ISSUER#")
    ] = "",
    oidc_groups_claim: Annotated[str, typer.Option(help="The claim with the user's groups.", show_default=False)] = "",
    oidc_groups_prefix: Annotated[str, typer.Option(help="The prefix of groups' names.", show_default=False)] = "",
    oidc_required_claim: Annotated[
        list[str] | None,
        typer.Option(
            metavar="<name=value>", help="A claim that tokens must carry; may be repeated.", show_default=False
        ),
    ] = None,
    oidc_ca_file: Annotated[
        Path | None, typer.Option(help="The CA of the issuer's certificate.", show_default="the system's")
    ] = None,
    oidc_signing_algs: Annotated[
        str, typer.Option(help="The signing algorithms to accept, separated by commas.")
    ] = "RS256",
    authentication_token_webhook_config_file: Annotated[
        Path | None, typer.Option(help="A kubeconfig for the webhook that receives TokenReviews.", show_default=False)
    ] = None,
    authorization_mode: Annotated[
        str,
        typer.Option(
            help="Authorizers in their order: Node, RBAC, Webhook, AlwaysAllow, AlwaysDeny.", show_default="Node,RBAC"
        ),
    ] = "",
    authorization_config: Annotated[
        Path | None,
        typer.Option(
            help="An AuthorizationConfiguration, instead of the mode: authorizers in their order, and any number of "
            "webhooks with conditions. It takes effect again when it is saved.",
            show_default=False,
        ),
    ] = None,
    authorization_webhook_config_file: Annotated[
        Path | None,
        typer.Option(help="A kubeconfig for the webhook that receives SubjectAccessReviews.", show_default=False),
    ] = None,
    service_account_issuer: Annotated[str, typer.Option(help="The issuer of service account tokens.")] = ISSUER,
    service_account_key_file: Annotated[
        list[Path] | None,
        typer.Option(
            help="Also accept service account tokens that these keys, or the keys of these certificates, have signed; "
            "may be repeated.",
            show_default=False,
        ),
    ] = None,
) -> AuthSettings:
    """Return the settings of authentication and authorization. Exit if flags are wrong or exclude each other."""
    if authorization_config is not None and (authorization_mode or authorization_webhook_config_file is not None):
        replaced = "--authorization-mode and --authorization-webhook-config-file"
        fail(f"--authorization-config replaces {replaced}; leave them out")
    has_oidc = oidc_issuer_url or oidc_client_id
    if authentication_config is not None and has_oidc:
        fail("--authentication-config replaces the flags --oidc-…; write the issuer into the file")
    if oidc_client_id and not oidc_issuer_url:
        fail("--oidc-client-id needs --oidc-issuer-url, the issuer of the tokens; add it")
    issuers: tuple[TrustedIssuer, ...] = ()
    if oidc_issuer_url:
        try:
            issuers = (
                issuer_of_flags(
                    oidc_issuer_url,
                    oidc_client_id,
                    username=ClaimMapping(oidc_username_claim, oidc_username_prefix),
                    groups=ClaimMapping(oidc_groups_claim, oidc_groups_prefix),
                    required_claims=dict(_pair(claim) for claim in oidc_required_claim or ()),
                    authorities=oidc_ca_file.read_text() if oidc_ca_file is not None else "",
                    algorithms=tuple(oidc_signing_algs.split(",")),
                ),
            )
        except (ValueError, OSError) as error:
            fail(error)
    return AuthSettings(
        token_file=token_auth_file,
        issuers=issuers,
        configuration=authentication_config,
        anonymous=anonymous_auth,
        token_webhook=authentication_token_webhook_config_file,
        authorization_webhook=authorization_webhook_config_file,
        authorization_configuration=authorization_config,
        authorization_modes=split_list(authorization_mode),
        token_keys=tuple(service_account_key_file or ()),
        issuer=service_account_issuer,
    )


def _pair(claim: str) -> tuple[str, str]:
    name, equals, value = claim.partition("=")
    if not equals:
        raise ValueError(f"--oidc-required-claim {claim}: expected name=value")
    return name, value
