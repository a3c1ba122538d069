"""Custom schedulers: functions that filter and score nodes, on top of kube-scheduler's plug-ins or without them."""

from pinnace.scheduler.framework.one_node import NodeView
from pinnace.scheduler.framework.plugin import Nomination, Wait
from pinnace.scheduler.state.pods import Pod
from pinnace.scheduler.what_if.copies import copy_cluster
from pinnace.scheduler.what_if.explanation import SchedulingReport, explain
from pinnace.scheduler.what_if.simulation import SimulatedPod, simulate
from pinnace.sdk.scheduling.context import SchedulerContext
from pinnace.sdk.scheduling.nodes import NodeArrays
from pinnace.sdk.scheduling.scheduler import Scheduler
from pinnace.sdk.scheduling.trial import Trial

__all__ = [
    "NodeArrays",
    "NodeView",
    "Nomination",
    "Pod",
    "Scheduler",
    "SchedulerContext",
    "SchedulingReport",
    "SimulatedPod",
    "Trial",
    "Wait",
    "copy_cluster",
    "explain",
    "simulate",
]
