"""Refuses to start with keys and tokens that other users of this machine can read."""

from __future__ import annotations

import logging

from pinnace.cluster.settings import Settings
from pinnace.process.private_files import check_private

_GROUP, _OTHERS = 0o070, 0o007

log = logging.getLogger(__name__)


def check_secret_files(settings: Settings) -> None:
    """Raise UnsafeFile if another user can reach a key or token that the settings name."""
    if settings.encryption_key_file is not None:
        check_private(settings.encryption_key_file, "the encryption key file")
    if settings.encryption_configuration is not None:
        check_private(settings.encryption_configuration, "the encryption provider configuration")
    if settings.auth.token_file is not None:
        check_private(settings.auth.token_file, "the token file")
    files, etcd = settings.key_files, settings.etcd
    # Key files of deployments often belong to a group that may read them.
    for path, what in (
        (files.signing_key, "the service account signing key"),
        (files.key, "the key of the serving certificate"),
        (etcd.key_file if etcd is not None else None, "the key of the client certificate for etcd"),
        (etcd.password_file if etcd is not None else None, "the password file for etcd"),
    ):
        if path is not None:
            check_private(path, what, is_shared=True)
    for path in (settings.auth.token_webhook, settings.auth.authorization_webhook):
        if path is not None and path.exists() and path.stat().st_mode & (_GROUP | _OTHERS):
            log.warning("the kubeconfig %s can be read by other users of this machine: chmod 600 %s", path, path)
