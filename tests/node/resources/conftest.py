"""The nodes on which these tests run pods."""

from __future__ import annotations

from tests.node.agent.conftest import memory_node as memory_node
from tests.node.agent.conftest import node as node
