"""Which admission plug-ins run: the defaults of the minor version, and those of the flags."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pinnace.admission.plugin_table import PLUGINS, AdmissionPluginError, choose
from pinnace.cluster.control_plane import build
from pinnace.cluster.settings import AdmissionSettings, Settings
from pinnace.store.memory import MemoryStore

PAGE = Path(__file__).parents[2] / "docs" / "admission-plugins.md"


def test_the_defaults_are_those_of_the_minor_version() -> None:
    newest = choose((), (), "1.37")
    assert {"PodGroupProtection", "PodResizeValidator", "NodeRestriction"} < newest
    assert not newest & {"AlwaysPullImages", "EventRateLimit", "NamespaceExists"}
    assert newest - choose((), (), "1.35") == {"PodGroupProtection", "PodResizeValidator"}
    assert choose(("AlwaysDeny",), ("Priority",), "1.37") == newest - {"Priority"} | {"AlwaysDeny"}


@pytest.mark.parametrize(
    ("enabled", "disabled", "error"),
    [
        ("Nope", "", 'enable-admission-plugins plugin "Nope" is unknown; expected AlwaysAdmit, AlwaysDeny, '),
        ("", "Nope", 'disable-admission-plugins plugin "Nope" is unknown; expected '),
        ("PodResizeValidator", "", 'plugin "PodResizeValidator" is unknown: Kubernetes has it since 1.36'),
        ("SecurityContextDeny", "", 'plugin "SecurityContextDeny" is unknown: only Kubernetes 1.25 to 1.29 had it'),
        ("Priority", "Priority", "[Priority] in enable-admission-plugins and disable-admission-plugins overlapped"),
    ],
)
def test_names_that_cannot_be_used_are_refused(enabled: str, disabled: str, error: str) -> None:
    with pytest.raises(AdmissionPluginError) as refused:
        choose(list(filter(None, [enabled])), list(filter(None, [disabled])), "1.35")
    assert error in str(refused.value)


async def test_each_plug_in_of_the_table_can_be_enabled_and_disabled() -> None:
    needs_settings = {"EventRateLimit", "ImagePolicyWebhook"}
    names = frozenset(row.name for row in PLUGINS) - needs_settings
    for settings in (AdmissionSettings(enabled=names), AdmissionSettings(disabled=names)):
        plane = await build(Settings(admission=settings), MemoryStore())
        await plane.close()


def test_the_page_of_the_plug_ins_lists_each_with_its_default() -> None:
    rows = re.findall(r"^\| `(\w+)`[^|]*\| (on|off)\b", PAGE.read_text(), re.MULTILINE)
    assert rows == [(row.name, "on" if row.is_default else "off") for row in PLUGINS]
