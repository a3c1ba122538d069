"""Custom schedulers: functions that filter and score nodes, on top of kube-scheduler's plug-ins or without them."""

from pinnace.scheduler.framework.one_node import NodeView
from pinnace.scheduler.framework.plugin import Nomination, Wait
from pinnace.scheduler.state.pods import Pod
from pinnace.sdk.scheduling.nodes import NodeArrays
from pinnace.sdk.scheduling.scheduler import Scheduler
from pinnace.sdk.scheduling.trial import Trial

__all__ = ["NodeArrays", "NodeView", "Nomination", "Pod", "Scheduler", "Trial", "Wait"]
