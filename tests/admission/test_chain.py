"""Which plug-ins of a chain see a write."""

from __future__ import annotations

from collections.abc import Callable

from pinnace.admission.chain import AdmissionChain, AdmissionPlugin
from pinnace.model.objects import Kind
from pinnace.model.resources import Resource
from pinnace.model.users import User
from pinnace.model.write_review import Review
from pinnace.schema.shape import Schema

CONFIG_MAP = Kind("", "v1", "ConfigMap")
CONFIG_MAPS = Resource(
    kind=CONFIG_MAP,
    plural="configmaps",
    singular="configmap",
    namespaced=True,
    schema_of=lambda: Schema({}),
    stored=CONFIG_MAP,
)


class CountingPlugin(AdmissionPlugin):
    """Acts by objects that the test pretends to create."""

    def __init__(self) -> None:
        self.calls = 0
        self._is_idle = True
        self._listeners: list[Callable[[], None]] = []

    def is_idle(self) -> bool:
        return self._is_idle

    def on_configured(self, changed: Callable[[], None]) -> None:
        self._listeners.append(changed)

    def configure(self, *, is_idle: bool) -> None:
        self._is_idle = is_idle
        for changed in self._listeners:
            changed()

    def mutate(self, review: Review) -> None:
        self.calls += 1

    def validate(self, review: Review) -> None:
        self.calls += 1


def admit(chain: AdmissionChain) -> None:
    review = Review("CREATE", CONFIG_MAPS, "", "default", "a", {"metadata": {"name": "a"}}, None, User("bob"))
    assert chain.mutate(review) is None
    assert chain.validate(review) is None


def test_a_plug_in_is_called_only_while_an_object_configures_it() -> None:
    plugin = CountingPlugin()
    chain = AdmissionChain([plugin], [plugin])
    admit(chain)
    assert plugin.calls == 0
    plugin.configure(is_idle=False)
    admit(chain)
    assert plugin.calls == 2
    plugin.configure(is_idle=True)
    admit(chain)
    assert plugin.calls == 2
