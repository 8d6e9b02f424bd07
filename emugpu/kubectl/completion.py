"""The program kubectl_complete-emugpu, which kubectl calls for completions of `kubectl emugpu ...` (1.26 and later).

Its arguments are the words after `emugpu`, the last of them unfinished (perhaps empty). It prints a completion per line, a
description after a tab, then a number: :4 tells the shell not to offer files, :0 to do so. Source: Kubernetes enhancement 2379,
"Shell Completion Support". After any failure it offers nothing and prints nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any

from emugpu.kubectl import options
from emugpu.kubectl.__main__ import COMMANDS, command_in, parser
from emugpu.kubectl.cluster import Cluster, listed
from emugpu.kubectl.job_views import jobs_in
from emugpu.kubectl.scheduling_experiments import experiments_in
from emulator_runtime.domain.errors import EmuGpuError
from operators.kube.api import NAMESPACE, NODE, POD, Api, Json
from operators.kube.client import KubeApi
from operators.kube.documents import object_at, text_at
from operators.kube.kubeconfig import connection, context_names
from operators.objects.names import PHASES

NO_FILES, FILES = ":4", ":0"
_PATIENCE_S = 2.0
Offer = tuple[str, str]
"""A completion and its description, which may be empty."""


def main(argv: Sequence[str] | None = None, connect: options.Connect | None = None) -> int:
    """Returns 0, whatever happens. Tests replace `connect`."""
    *before, unfinished = (sys.argv[1:] if argv is None else argv) or [""]
    try:
        found = offers(before, connect or _connect)
    except (EmuGpuError, SystemExit, OSError):
        found = []
    for word, text in () if found is None else sorted(set(found)):
        if word.startswith(unfinished) and word.startswith("-") == unfinished.startswith("-"):
            print(f"{word}\t{text}" if text else word)
    print(FILES if found is None else NO_FILES)
    return 0


def offers(before: Sequence[str], connect: options.Connect) -> list[Offer] | None:
    """Completions of these words; None: a file. Raises what requests to the cluster raise."""
    command = command_in(before)
    actions = _actions(command)
    flags = {flag: action for action in actions for flag in action.option_strings}
    option = flags.get(before[-1]) if before else None
    if option is not None and option.nargs != 0:
        return _values(option, before, connect)
    found = [(flag, _help(action)) for flag, action in flags.items() if flag.startswith("--")]
    if command is None:
        return [*found, *COMMANDS.items()]
    places = [action for action in actions if not action.option_strings]
    given = _given(before, command, flags)
    if given < len(places):
        found += _values(places[given], before, connect) or []
    return found


def _actions(command: str | None) -> list[argparse.Action]:
    """The arguments of a command, or of the program if none is named yet."""
    front = parser(command)
    if command is None:
        return [action for action in front._actions if action.option_strings]
    (commands,) = (action for action in front._actions if isinstance(action.choices, dict))
    own: argparse.ArgumentParser = commands.choices[command]  # type: ignore[index]  # found by being a dict
    return own._actions


def _help(action: argparse.Action) -> str:
    return (action.help or "").replace("%%", "%")


def _given(before: Sequence[str], command: str, flags: dict[str, argparse.Action]) -> int:
    """Number of words after the command that are neither options nor their values."""
    count, previous = 0, ""
    for word in before[list(before).index(command) + 1 :]:
        takes_value = previous in flags and flags[previous].nargs != 0
        count += not word.startswith("-") and not takes_value
        previous = word
    return count


def _values(action: argparse.Action, before: Sequence[str], connect: options.Connect) -> list[Offer] | None:
    """Completions of the value of an option or argument; None: a file."""
    if action.type is Path:
        return None
    if action.choices is not None:
        return [(str(choice), "") for choice in action.choices]
    if action.dest == "phase":
        return [(phase, "") for phase in PHASES]
    args, _ = _connection(before)
    if action.dest == "context":
        return [(name, "") for name in context_names(args.kubeconfig)]
    question = _QUESTIONS.get(action.dest)
    if question is None:
        return []
    with connect(args) as cluster:
        return cluster.ask(lambda api: question(api, cluster.namespace))


def _connection(before: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    return options.connection().parse_known_args(list(before), argparse.Namespace(**options.DEFAULTS))


def _connect(args: argparse.Namespace) -> Cluster:
    """With a short timeout, because a shell waits."""
    found = connection(args.kubeconfig, args.context, args.namespace)
    return Cluster(KubeApi(found, timeout_s=_PATIENCE_S), found.namespace)


# -- what the cluster knows --------------------------------------------------------------------------------------------


async def _jobs(api: Api, namespace: str) -> list[Offer]:
    return [(job.name, job.phase) for job in await jobs_in(api, namespace)]


async def _namespaces(api: Api, _: str) -> list[Offer]:
    return _names(await listed(api, NAMESPACE), "")


async def _nodes_and_pods(api: Api, namespace: str) -> list[Offer]:
    return [*_names(await listed(api, NODE), "node"), *_names(await listed(api, POD, namespace=namespace), "pod")]


async def _experiments(api: Api, _: str) -> list[Offer]:
    found = {job.experiment for job in await jobs_in(api, "*")}
    objects = [(seen.name, seen.phase) for seen in await experiments_in(api, "*", [])]
    return [*objects, *((name, "") for name in sorted(found - {""}))]


def _names(documents: Iterable[Json], text: str) -> list[Offer]:
    return [(text_at(object_at(document, "metadata"), "name"), text) for document in documents]


_QUESTIONS: dict[str, Callable[[Api, str], Coroutine[Any, Any, list[Offer]]]] = {
    "job": _jobs,
    "namespace": _namespaces,
    "name": _nodes_and_pods,
    "experiment": _experiments,
}
"""By the name of the option or argument."""


if __name__ == "__main__":
    sys.exit(main())
