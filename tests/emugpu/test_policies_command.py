from __future__ import annotations

import argparse
import json

import pytest

from emugpu.commands import policies
from scheduler_sims.policies import POLICIES


def run(*words):
    parser = argparse.ArgumentParser()
    policies.add_parser(parser.add_subparsers())
    args = parser.parse_args(["policies", *words])
    return args.run(args)


def test_json_says_what_each_policy_is(capsys):
    assert run("--json") == 0
    entries = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert list(entries) == list(POLICIES)
    assert entries["las"]["options"] == {"threshold_s": 60.0, "quantum_s": 10.0}
    assert (entries["las"]["preemptive"], entries["las"]["needs_estimates"]) == (True, False)
    assert (entries["allox"]["preemptive"], entries["allox"]["needs_estimates"]) == (False, True)
    assert entries["fifo"]["options"] == {"backfill": "none"}


def test_summaries_are_one_sentence():
    for entry in policies.describe_policies():
        assert 20 < len(entry["summary"]) < 160
        assert not entry["summary"].endswith(".")
        assert "\n" not in entry["summary"]


def test_the_table_names_policies_and_options(capsys):
    assert run() == 0
    out = capsys.readouterr().out
    for name in POLICIES:
        assert name in out
    assert "threshold_s=60.0" in out
    assert "max_candidates=0" in out
    assert "--policy FILE.py:CLASS" in out


def test_unknown_arguments_are_refused(capsys):
    with pytest.raises(SystemExit):
        run("--yaml")
    assert "unrecognized arguments" in capsys.readouterr().err
