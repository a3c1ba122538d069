"""Authenticators: certificates, tokens, OIDC, service accounts, impersonation."""
