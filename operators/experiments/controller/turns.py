"""Which experiment may run: two at once would disturb each other, so one uses the cluster and the others wait, oldest first."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from operators.experiments.controller.objects import ExperimentFacts, RunNamespace, RunnerFacts

FINAL = ("Succeeded", "Failed")


def turn(
    experiments: Iterable[ExperimentFacts],
    runners: Mapping[str, RunnerFacts],
    namespaces: Mapping[str, Sequence[RunNamespace]],
    ready: Collection[str],
) -> str:
    """The uid of the experiment that may run; empty: none may. `runners` and `namespaces` by uid; `ready`: uids that can run.

    An experiment keeps the cluster until its runner has stopped and the namespaces of its runs are gone, also when it is
    suspended or deleted. Runners and namespaces of deleted experiments count as well.
    """
    busy = {uid for uid, runner in runners.items() if runner.works} | {uid for uid, left in namespaces.items() if left}
    waiting = [e for e in experiments if e.key.uid in ready and not e.deleting and e.phase not in FINAL]
    waiting.sort(key=lambda e: (e.created, e.key.namespace, e.key.name))
    holders = [e for e in waiting if e.key.uid in busy]
    if holders:
        return holders[0].key.uid
    if busy:
        return ""
    return waiting[0].key.uid if waiting else ""
