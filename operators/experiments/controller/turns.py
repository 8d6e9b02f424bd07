"""Whose turn it is: two experiments at once would disturb each other, so one has the cluster and the rest wait, oldest first."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from operators.experiments.controller.objects import ArenaFacts, ExperimentFacts, RunnerFacts

FINAL = ("Succeeded", "Failed")


def turn(
    experiments: Iterable[ExperimentFacts],
    runners: Mapping[str, RunnerFacts],
    arenas: Mapping[str, Sequence[ArenaFacts]],
    ready: Collection[str],
) -> str:
    """The uid of the experiment that may run; empty: of none. `runners` and `arenas` by uid; `ready`: uids of those that can.

    Who has the cluster keeps it until its runner is still and nothing of its runs is left, also when it is held or deleted;
    runners and namespaces of experiments that are gone count as well.
    """
    busy = {uid for uid, runner in runners.items() if runner.works} | {uid for uid, left in arenas.items() if left}
    waiting = [e for e in experiments if e.key.uid in ready and not e.deleting and e.phase not in FINAL]
    waiting.sort(key=lambda e: (e.created, e.key.namespace, e.key.name))
    holders = [e for e in waiting if e.key.uid in busy]
    if holders:
        return holders[0].key.uid
    if busy:
        return ""
    return waiting[0].key.uid if waiting else ""
