"""What is special about the kinds that make pods."""

from pinnace.model.resources import Strategy

REPLICATION_CONTROLLER = Strategy()
DEPLOYMENT = Strategy()
REPLICA_SET = Strategy()
STATEFUL_SET = Strategy()
DAEMON_SET = Strategy()
CONTROLLER_REVISION = Strategy()
