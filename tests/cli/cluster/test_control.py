"""`pinnace up --control`: the settings with which it cannot be combined."""

from __future__ import annotations

from pathlib import Path

import pytest

from pinnace.auth.certificates.authority import KeyFiles
from pinnace.cli.cluster.foreground import control_error
from pinnace.cluster.settings import Settings
from pinnace.server.audit.settings import AuditSettings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (Settings(data_dir=Path("/tmp/data")), "--control is for clusters in memory; add --ephemeral"),
        (Settings(host="0.0.0.0"), "--control listens on loopback only, not on 0.0.0.0"),
        (Settings(host="example.com"), "--control listens on loopback only, not on example.com"),
        (Settings(node="here"), "--node and --agents cannot be combined with --control"),
        (Settings(stages=Path("stages.yaml")), "--stages cannot be combined"),
        (Settings(audit=AuditSettings(log_path=Path("-"))), "--audit-* cannot be combined"),
        (Settings(key_files=KeyFiles(client_ca=Path("ca.crt"))), "--client-ca-file"),
        (Settings(encryption_key_file=Path("keys")), "--encryption-key-file cannot be combined"),
    ],
)
def test_a_setting_without_effect_is_refused(settings: Settings, message: str) -> None:
    assert message in control_error(settings)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_loopback_is_accepted(host: str) -> None:
    assert control_error(Settings(host=host, nodes=2)) == ""
