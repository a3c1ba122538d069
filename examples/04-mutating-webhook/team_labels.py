"""Labels every new ConfigMap with its team: the name of its namespace, unless it has a label already.

pinnace run examples/04-mutating-webhook/team_labels.py --dev
"""

from __future__ import annotations

from typing import Any

from pinnace.sdk import Admission, Operator

Object = dict[str, Any]

operator = Operator("team-labels")


# While this operator is not running, ConfigMaps are accepted unchanged: a label is not worth blocking a cluster.
@operator.mutate("v1/ConfigMap", operations=["CREATE"], ignore_failure=True)
def add_team(obj: Object, admission: Admission) -> None:
    obj["metadata"].setdefault("labels", {}).setdefault("team", admission.namespace)


@operator.validate("v1/ConfigMap", operations=["CREATE", "UPDATE"], ignore_failure=True)
def known_team(obj: Object) -> str | None:
    team = obj["metadata"].get("labels", {}).get("team", "")
    return None if team.islower() else f"team={team!r}: write it in small letters"
