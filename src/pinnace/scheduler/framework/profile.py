"""A profile: the plug-ins of one `schedulerName`, by moment and in order, and what is kept for each template."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from pinnace.scheduler.framework.cycle import Cycle
from pinnace.scheduler.framework.diagnosis import Diagnosis
from pinnace.scheduler.framework.evaluation import Evaluation, LocalFilters, WeightedScore
from pinnace.scheduler.framework.events import EventRegistration
from pinnace.scheduler.framework.guard import call, filter_codes
from pinnace.scheduler.framework.limits import refuse_excess
from pinnace.scheduler.framework.plugin import Depends, Plugin
from pinnace.scheduler.framework.status import Code, OnlyNodes, Refusal, Skip, unresolvable
from pinnace.scheduler.state.arrays import ALL, Slots
from pinnace.scheduler.state.pods import Template

_MOST_TEMPLATES = 128
_PREFILTER = "framework"
_RESOURCES = "NodeResourcesFit"


class Profile:
    """The plug-ins of one scheduler name."""

    def __init__(
        self,
        name: str,
        plugins: Iterable[Plugin],
        *,
        weights: Mapping[str, int] | None = None,
        enabled: Callable[[str, str], bool] = lambda plugin, moment: True,
    ) -> None:
        """`enabled(plugin, moment)` tells whether a plug-in takes part in a moment that it has a method for."""
        self.name = name
        self.plugins = list(plugins)
        self.weights = dict(weights or {})
        self._enabled = enabled
        self.pre_enqueue = self._at("preEnqueue", "pre_enqueue")
        self.queue_sort = self._at("queueSort", "sort_key")
        self.pre_filter = self._at("preFilter", "pre_filter")
        self.filter = self._at("filter", "filter")
        self.post_filter = self._at("postFilter", "post_filter")
        self.pre_score = self._at("preScore", "pre_score")
        self.score = [
            WeightedScore(plugin, self.weights.get(plugin.name, 0) or 1) for plugin in self._at("score", "score")
        ]
        self.reserve = self._at("reserve", "reserve")
        self.permit = self._at("permit", "permit")
        self.pre_bind = self._at("preBind", "pre_bind")
        self.bind = self._at("bind", "bind")
        self.post_bind = self._at("postBind", "post_bind")
        local = [plugin for plugin in self.filter if not plugin.depends & Depends.CLUSTER]
        self._by_node = LocalFilters([plugin for plugin in local if not plugin.depends & Depends.PODS])
        self._by_pods = LocalFilters([plugin for plugin in local if plugin.depends & Depends.PODS])
        self.cluster_filters = [plugin for plugin in self.filter if plugin.depends & Depends.CLUSTER]
        self._local_scores = [scorer for scorer in self.score if not scorer.plugin.depends & Depends.CLUSTER]
        self.cluster_scores = [scorer for scorer in self.score if scorer.plugin.depends & Depends.CLUSTER]
        self._ignores_labels = all(
            plugin.ignores_labels for plugin in (*local, *(weighted.plugin for weighted in self._local_scores))
        )
        self._evaluations: OrderedDict[Hashable, Evaluation] = OrderedDict()

    @property
    def batch_binder(self) -> Plugin | None:
        """The only Bind plug-in, if it can bind many pods at once."""
        # An extender may have joined.
        return self.bind[0] if len(self.bind) == 1 and self.bind[0].overrides("bind_many") else None

    def has_pre_bind(self, cycle: Cycle) -> bool:
        """Return whether a PreBind plug-in may have work to do for a pod."""
        return any(plugin.has_pre_bind(cycle) for plugin in self.pre_bind)

    def _at(self, moment: str, method: str) -> list[Plugin]:
        return [plugin for plugin in self.plugins if self._enabled(plugin.name, moment) and plugin.overrides(method)]

    def plugin(self, name: str) -> Plugin | None:
        return next((plugin for plugin in self.plugins if plugin.name == name), None)

    def evaluation(self, template: Template) -> Evaluation:
        """Return the values that are kept for a template.

        The pods of thousands of Jobs differ in labels and owner: they share them if no plug-in reads those.
        """
        key: Hashable = template.local_key if self._ignores_labels else template
        known = self._evaluations.get(key)
        if known is None:
            known = self._evaluations[key] = Evaluation(self._by_node, self._by_pods, self._local_scores)
            if len(self._evaluations) > _MOST_TEMPLATES:
                self._evaluations.popitem(last=False)
        else:
            self._evaluations.move_to_end(key)
        return known

    # PreFilter and Filter

    def prepare(self, cycle: Cycle) -> Preparation:
        """Run PreFilter."""
        preparation = Preparation()
        preparation.refusal = refuse_excess(cycle.template)
        for plugin in self.pre_filter if preparation.refusal is None else ():
            result = call(plugin.name, "prefilter", plugin.pre_filter, cycle)
            if result is None:
                continue
            if isinstance(result, Skip):
                preparation.skipped.add(plugin.name)
            elif isinstance(result, OnlyNodes):
                preparation.restrict(plugin.name, result.names)
            else:
                preparation.refusal = Refusal(result.code, result.reasons, plugin.name)
            if preparation.is_hopeless:
                break  # After another refusal the notes of all plug-ins are needed by preemption.
        cycle.data[_PREFILTER] = preparation
        return preparation

    def is_local(self, cycle: Cycle) -> bool:
        """Return whether the filters of this pod look at each node alone."""
        skipped = cycle.data[_PREFILTER].skipped
        return all(plugin.name in skipped for plugin in self.cluster_filters)

    def needs_only_resources(self, cycle: Cycle) -> bool:
        """Return whether the pods of a node matter to this pod by their requests alone."""
        skipped = cycle.data[_PREFILTER].skipped
        by_pods = (plugin.name for plugin in self.filter if plugin.depends & (Depends.PODS | Depends.CLUSTER))
        return all(name in skipped or name == _RESOURCES for name in by_pods)

    def check(self, cycle: Cycle, slots: Slots) -> Diagnosis:
        """Run all filters on some nodes in the present state; nodes without a refusal fit."""
        notes, cycle.data = cycle.data, {}
        try:
            return self.diagnose(cycle, self.prepare(cycle), slots)  # The state has changed since PreFilter.
        finally:
            cycle.data = notes

    def refusal_at(self, cycle: Cycle, slot: int) -> Refusal | None:
        """Return why the pod does not fit on a node in the present state; first beside pods nominated for it."""
        beside = self.refusal_beside_nominated(cycle, slot)
        return beside if beside is not None else self.check(cycle, np.array([slot], dtype=np.intp)).of(slot)

    def refusal_beside_nominated(self, cycle: Cycle, slot: int) -> Refusal | None:
        """Return the refusal if the pods nominated for a node, of no lower priority, ran there already."""
        state = cycle.state
        others = [
            pod
            for pod in state.nominations.slots.get(slot, {}).values()
            if pod.priority >= cycle.pod.priority and pod.uid != cycle.pod.uid and pod.uid not in state.pods
        ]
        if not others:
            return None
        with state.nominations.placed(others, slot):
            return self.check(cycle, np.array([slot], dtype=np.intp)).of(slot)

    def diagnose(self, cycle: Cycle, preparation: Preparation, slots: Slots) -> Diagnosis:
        """Return the first refusal of each of the nodes."""
        nodes = cycle.state.nodes
        present = np.zeros(nodes.size, dtype=np.bool_)
        present[slots] = nodes.present[slots]
        diagnosis = Diagnosis(nodes.names, present, np.full(nodes.size, -1, dtype=np.int32))
        if preparation.refusal is not None:
            diagnosis.for_all = preparation.refusal
            return diagnosis
        left = slots[nodes.present[slots]]
        if preparation.only is not None:
            left = self._restrict(diagnosis, preparation, left)
        for plugin in self.filter:
            if not len(left):
                break
            if plugin.name not in preparation.skipped:
                left = _refuse(plugin, cycle, diagnosis, left)
        return diagnosis

    def _restrict(self, diagnosis: Diagnosis, preparation: Preparation, left: Slots) -> Slots:
        assert preparation.only is not None
        is_named = np.array([diagnosis.names[slot] in preparation.only for slot in left], dtype=np.bool_)
        others = np.zeros_like(diagnosis.present)
        others[left[~is_named]] = True
        if others.any():
            # Go prints a list of names with spaces.
            who = " ".join(sorted(preparation.restricted_by))
            plugin = sorted(preparation.restricted_by)[0]
            diagnosis.set(others, unresolvable(f"node(s) didn't satisfy plugin(s) [{who}]", plugin=plugin))
        return left[is_named]


@dataclass(slots=True)
class Preparation:
    """The results of PreFilter."""

    skipped: set[str] = field(default_factory=set)
    only: frozenset[str] | None = None
    restricted_by: set[str] = field(default_factory=set)
    refusal: Refusal | None = None

    @property
    def is_hopeless(self) -> bool:
        return self.refusal is not None and self.refusal.code is not Code.UNSCHEDULABLE

    def restrict(self, plugin: str, names: frozenset[str]) -> None:
        self.only = names if self.only is None else self.only & names
        self.restricted_by.add(plugin)
        if not self.only:
            who = " ".join(sorted(self.restricted_by))
            text = f"node(s) didn't satisfy plugin(s) [{who}] simultaneously"
            if len(self.restricted_by) == 1:
                text = f"node(s) didn't satisfy plugin {plugin}"
            self.refusal = unresolvable(text, plugin=plugin)


def _refuse(plugin: Plugin, cycle: Cycle, diagnosis: Diagnosis, left: Slots) -> Slots:
    # All slots as a slice: numpy copies the values of an array of slots.
    codes = filter_codes(plugin, cycle, ALL if len(left) == cycle.state.size else left)
    refused = codes != 0
    if not refused.any():
        return left
    refusals = codes[refused]
    lowest, highest = int(refusals.min()), int(refusals.max())
    for code in [lowest] if lowest == highest else np.unique(refusals).tolist():
        mask = np.zeros_like(diagnosis.present)
        mask[left[codes == code]] = True
        refusal = call(plugin.name, "filter", plugin.refusal, cycle, code)
        diagnosis.set(mask, Refusal(refusal.code, refusal.reasons, plugin.name))
    passed: Slots = left[~refused]
    return passed


def registered_events(profile: Profile) -> dict[str, Sequence[EventRegistration] | None]:
    """Return the event registrations of each plug-in; None for one that is interested in every event."""
    return {plugin.name: plugin.events() for plugin in profile.plugins}
