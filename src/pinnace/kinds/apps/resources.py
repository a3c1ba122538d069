"""The rows of deployments, replica sets, stateful sets, daemon sets and controller revisions."""

from __future__ import annotations

from functools import partial

from pinnace.kinds.apps import columns, conversion, stateful_sets, validation
from pinnace.kinds.rows import GA, SCALE, STATUS, Row, old

_v1beta1 = partial(old, "v1beta1", deprecated="1.8", removed="1.16", replacement="apps/v1")
_v1beta2 = partial(old, "v1beta2", deprecated="1.9", removed="1.16", replacement="apps/v1")

ROWS = (
    Row(
        group="apps",
        name="ControllerRevision",
        plural="controllerrevisions",
        columns=columns.CONTROLLER_REVISION,
        versions=(GA, _v1beta2(), _v1beta1()),
        strategy=validation.CONTROLLER_REVISION,
    ),
    Row(
        group="apps",
        name="DaemonSet",
        plural="daemonsets",
        columns=columns.DAEMON_SET,
        short_names=("ds",),
        categories=("all",),
        versions=(
            GA,
            _v1beta2(),
            _v1beta1(
                group="extensions",
                to_stored=conversion.daemon_set_of_extensions,
                reshape=conversion.old_daemon_set,
            ),
        ),
        subresources=(STATUS,),
        strategy=validation.DAEMON_SET,
    ),
    Row(
        group="apps",
        name="Deployment",
        plural="deployments",
        columns=columns.DEPLOYMENT,
        short_names=("deploy",),
        categories=("all",),
        versions=(
            GA,
            _v1beta2(),
            _v1beta1(
                to_stored=conversion.deployment_of_v1beta1,
                reshape=conversion.old_deployment,
            ),
            _v1beta1(
                group="extensions",
                to_stored=conversion.deployment_of_extensions,
                reshape=conversion.old_deployment,
            ),
        ),
        subresources=(SCALE, STATUS),
        strategy=validation.DEPLOYMENT,
    ),
    Row(
        group="apps",
        name="ReplicaSet",
        plural="replicasets",
        columns=columns.REPLICA_SET,
        short_names=("rs",),
        categories=("all",),
        versions=(
            GA,
            _v1beta2(),
            _v1beta1(
                group="extensions",
                to_stored=conversion.label_by_template,
                reshape=conversion.without_required_selector,
            ),
        ),
        subresources=(SCALE, STATUS),
        strategy=validation.REPLICA_SET,
    ),
    Row(
        group="apps",
        name="StatefulSet",
        plural="statefulsets",
        columns=columns.STATEFUL_SET,
        short_names=("sts",),
        categories=("all",),
        versions=(
            GA,
            _v1beta2(),
            _v1beta1(
                to_stored=conversion.stateful_set_of_v1beta1,
                reshape=conversion.without_required_selector,
            ),
        ),
        subresources=(SCALE, STATUS),
        strategy=stateful_sets.STATEFUL_SET,
        newer_strategy=("1.37", stateful_sets.STATEFUL_SET_SINCE_1_37),
    ),
)
