"""The errors with which a cluster does not start. Each message names the setting to change."""

from __future__ import annotations

from pinnace.auth.authentication.tokens import TokenFileError
from pinnace.auth.certificates.authority import CertificateError
from pinnace.auth.remote import RemoteConfigError
from pinnace.cluster.bootstrap.creation import BootstrapError
from pinnace.cluster.request.admission import AdmissionPluginError
from pinnace.cluster.request.security import AuthorizationModeError
from pinnace.server.audit.policy import AuditPolicyError
from pinnace.store.store import StoreError

STARTUP_ERRORS = (
    CertificateError,
    TokenFileError,
    RemoteConfigError,
    AuditPolicyError,
    BootstrapError,
    AuthorizationModeError,
    AdmissionPluginError,
    StoreError,
    OSError,
)
