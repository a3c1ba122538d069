"""The flags of `pinnace up` for an OpenID Connect issuer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pinnace.auth.authentication.oidc import Provider
from pinnace.cli.failure import fail


def oidc_providers(
    *,
    oidc_issuer_url: Annotated[
        str, typer.Option(help="Accept the tokens of this OpenID Connect issuer.", show_default=False)
    ] = "",
    oidc_client_id: Annotated[
        str, typer.Option(help="The audience that OIDC tokens must carry.", show_default=False)
    ] = "",
    oidc_username_claim: Annotated[str, typer.Option(help="The claim with the user's name.")] = "sub",
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
) -> tuple[Provider, ...]:
    """Return the issuer whose tokens are accepted; empty without one. Exit if a flag is missing or wrong."""
    if not oidc_issuer_url:
        if oidc_client_id:
            fail("--oidc-client-id needs --oidc-issuer-url, the issuer of the tokens; add it")
        return ()
    try:
        provider = Provider(
            issuer_url=oidc_issuer_url,
            client_id=oidc_client_id,
            username_claim=oidc_username_claim,
            username_prefix=oidc_username_prefix,
            groups_claim=oidc_groups_claim,
            groups_prefix=oidc_groups_prefix,
            required_claims=dict(_pair(claim) for claim in oidc_required_claim or ()),
            ca_file=oidc_ca_file,
            signing_algorithms=tuple(oidc_signing_algs.split(",")),
        )
    except ValueError as error:
        fail(error)
    return (provider,)


def _pair(claim: str) -> tuple[str, str]:
    name, equals, value = claim.partition("=")
    if not equals:
        raise ValueError(f"--oidc-required-claim {claim}: expected name=value")
    return name, value
