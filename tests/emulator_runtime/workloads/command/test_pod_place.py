"""Options and variables that name the pod's rank: their combinations, and that none is ignored silently."""

from __future__ import annotations

import argparse

import pytest

from emulator_runtime.domain.errors import InputError
from emulator_runtime.workloads.command.arguments import add_arguments
from emulator_runtime.workloads.command.pod_place import PodPlace, pod_place

ADDRESS = ("a.b", 29400)
BY_VARIABLES = {"EMUGPU_NODES": "3", "JOB_COMPLETION_INDEX": "2", "EMUGPU_RENDEZVOUS": "a.b:29400"}


def place(line: str, **environ: str) -> PodPlace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return pod_place(parser.parse_args(["--steps", "1", *line.split()]), environ)


@pytest.mark.parametrize(
    ("line", "environ", "expected"),
    [
        ("", {}, PodPlace()),
        ("--nodes 1", {}, PodPlace()),
        ("--nodes 1 --rank 0", {}, PodPlace()),
        ("--nodes 3 --rank 2 --rendezvous a.b:29400", {}, PodPlace(3, 2, ADDRESS)),
        ("", BY_VARIABLES, PodPlace(3, 2, ADDRESS)),
        ("", BY_VARIABLES | {"EMUGPU_RANK": "1"}, PodPlace(3, 1, ADDRESS)),
        ("--rank 0 --rendezvous c:1", BY_VARIABLES, PodPlace(3, 0, ("c", 1))),
        ("--nodes 2 --rank 1", BY_VARIABLES | {"EMUGPU_NODES": "many"}, PodPlace(2, 1, ADDRESS)),
        ("--nodes 3 --rendezvous a.b:29400", {"JOB_COMPLETION_INDEX": "0"}, PodPlace(3, 0, ADDRESS)),
    ],
)
def test_a_place(line: str, environ: dict[str, str], expected: PodPlace) -> None:
    assert place(line, **environ) == expected


@pytest.mark.parametrize(
    ("line", "environ"),
    [
        ("", {"JOB_COMPLETION_INDEX": "4"}),  # an Indexed Job of pods that have nothing to do with each other
        ("--nodes 1", BY_VARIABLES),
        ("", BY_VARIABLES | {"EMUGPU_NODES": "1"}),
        ("", {"EMUGPU_RENDEZVOUS": "a:1"}),
        ("--rendezvous a:1 --step-timeout-s 9", {"EMUGPU_NODES": "1"}),  # a job of a variable size, which is 1 now
        ("--rendezvous=", {}),
    ],
)
def test_one_pod_bears_variables_of_several(line: str, environ: dict[str, str]) -> None:
    assert place(line, **environ) == PodPlace()


@pytest.mark.parametrize(
    "option",
    ["--rank 0", "--rank 1", "--rendezvous a:1", "--rendezvous-timeout-s 9", "--step-timeout-s 9", "--network-gbps 1"],
)
def test_an_option_of_several_pods_needs_several(option: str) -> None:
    name = option.split()[0]
    with pytest.raises(
        InputError, match=rf"^{name}: is for several pods; say how many with --nodes \(or EMUGPU_NODES\)"
    ):
        place(option)
    with pytest.raises(InputError, match=rf"^{name}: is for several pods; say how many"):
        place(option, EMUGPU_NODES="", EMUGPU_RENDEZVOUS="a:1")
    if name != "--rank":
        with pytest.raises(InputError, match=rf"^{name}: is for several pods, and --nodes is 1; leave it out"):
            place(f"--nodes 1 {option}", EMUGPU_NODES="1")


@pytest.mark.parametrize(
    ("line", "environ", "message"),
    [
        ("--nodes 0", {}, "--nodes: must be from 1 to 4096, not 0"),
        ("", {"EMUGPU_NODES": "0"}, "EMUGPU_NODES: must be from 1 to 4096, not 0"),
        ("", {"EMUGPU_NODES": "two"}, "EMUGPU_NODES: must be a whole number, not 'two'"),
        ("--nodes 1 --rank 1", {}, "--rank: must be from 0 to 0, not 1"),
        ("--rank 2", {"EMUGPU_NODES": "1"}, "--rank: must be from 0 to 0, not 2"),
        ("--nodes 2 --rank 2", BY_VARIABLES, "--rank: must be from 0 to 1, not 2"),
        ("--nodes 2", BY_VARIABLES, "JOB_COMPLETION_INDEX: must be from 0 to 1, not 2"),
        ("", BY_VARIABLES | {"EMUGPU_RANK": "x"}, "EMUGPU_RANK: must be a whole number, not 'x'"),
        ("--nodes 2 --rank 0", {}, "--rendezvous: is missing: 2 nodes need HOST:PORT of rank 0 (or EMUGPU_RENDEZVOUS)"),
        ("--nodes 2 --rendezvous a:1", {}, "--rank: is missing: each of 2 nodes needs a number of its own; give it"),
        ("--nodes 2 --rank 0 --rendezvous a", {}, "--rendezvous: must be HOST:PORT"),
        ("--nodes 2 --rank 0", {"EMUGPU_RENDEZVOUS": "a"}, "EMUGPU_RENDEZVOUS: must be HOST:PORT"),
    ],
)
def test_a_mistake_names_the_option_or_variable(line: str, environ: dict[str, str], message: str) -> None:
    with pytest.raises(InputError) as caught:
        place(line, **environ)
    assert str(caught.value).startswith(message)
