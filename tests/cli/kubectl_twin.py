"""Runs a command line with kubectl and with pinnace, against the same cluster, to compare what both say."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from difflib import unified_diff

from tests.clients.kubectl_command import Kubectl, Outcome
from typer.testing import CliRunner

from pinnace.cli.command_table import app

_AGE = re.compile(r"\b\d+(m\d+)?s\b")
_PLACE = re.compile(r"( (?:force )?deleted) from \S+ namespace")


@dataclass(frozen=True, slots=True)
class Twin:
    """pinnace in the place of a kubectl."""

    kubectl: Kubectl

    def __call__(self, command: str, *, stdin: str = "") -> Outcome:
        words = ["--namespace", self.kubectl.namespace, *shlex.split(command)]
        result = CliRunner().invoke(app, words, input=stdin, env={"KUBECONFIG": str(self.kubectl.kubeconfig)})
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Outcome(result.exit_code, result.stdout, result.stderr)

    def say_the_same(self, command: str, *, stdin: str = "") -> Outcome:
        """Return the common output. It may differ in ages and in the name of the program only."""
        theirs, ours = self.kubectl.outcome(command, stdin=stdin), self(command, stdin=stdin)
        mine, reference = comparable(ours), comparable(theirs)
        differing = [*unified_diff(reference.stdout.splitlines(), mine.stdout.splitlines(), "kubectl", "pinnace", n=1)]
        assert not differing, "\n".join([command, *differing])
        assert mine == reference, command
        return ours


def comparable(outcome: Outcome) -> Outcome:
    """Return the output without the parts that differ between two runs or two versions of kubectl."""
    return Outcome(outcome.code, _plain(outcome.stdout), _plain(outcome.stderr))


def _plain(text: str) -> str:
    # Where something was deleted is said by newer kubectls only. Tables are as wide as their ages: blanks are one.
    text = _PLACE.sub(r"\1", _AGE.sub("AGE", text)).replace("kubectl", "pinnace")
    text = re.sub(r"  Kube-Proxy Version:.*\n", "", text)  # Newer ones leave it out: nodes do not say it any more.
    text = re.sub(r"Time Zone: .*\n", "", text)  # Older ones leave it out.
    return re.sub(r"AGE +", "AGE ", text)
