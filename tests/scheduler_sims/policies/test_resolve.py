from __future__ import annotations

import os
import sys

import pytest

from emulator_runtime.domain.errors import InputError, PolicyError, UnknownNameError
from scheduler_sims.policies import POLICIES
from scheduler_sims.policies.allox import Allox
from scheduler_sims.policies.las import Las
from scheduler_sims.policies.resolve import Option, options_of, resolve_policy
from scheduler_sims.testing import Job, Node, cluster_view

CUSTOM = '''
from dataclasses import dataclass

@dataclass
class Memory:
    seen: int

class Nothing:
    """Starts nothing."""

    def __init__(self, limit: int = 3, share: float = 0.5, eager: bool = False, tag: str = "x"):
        self.options = (limit, share, eager, tag)

    def plan(self, view):
        return view.plan.evolve(state=Memory(len(view.jobs)))

class Needs:
    needs_estimates = True
    def __init__(self, size: int):
        if size > 5:
            raise ValueError("too\\nlarge")
    def plan(self, view): ...

class Odd:
    def __init__(self, things: list = ()):
        pass
    def plan(self, view): ...

class Unreadable:
    def __init__(self, things: "Nowhere" = 1):
        pass
    def plan(self, view): ...

class Wrong:
    needs_estimates = "yes"
    def plan(self, view): ...

class NoPolicy:
    pass
'''


@pytest.fixture
def custom(tmp_path, monkeypatch):
    path = tmp_path / "mine.py"
    path.write_text(CUSTOM, encoding="utf-8")
    before = set(sys.modules)
    yield str(path)
    for name in set(sys.modules) - before:
        if name.startswith("emugpu_policy_"):
            del sys.modules[name]


@pytest.mark.parametrize("name", list(POLICIES))
def test_names_resolve_to_their_classes(name):
    shown, policy = resolve_policy(name)
    assert (shown, type(policy)) == (name, POLICIES[name])


def test_options_are_typed_and_stay_in_the_name():
    name, policy = resolve_policy("las:threshold_s=300,quantum_s=5")
    assert (name, type(policy)) == ("las:threshold_s=300,quantum_s=5", Las)
    assert (policy.threshold_s, policy.quantum_s) == (300.0, 5.0)
    policy = resolve_policy("allox:max_candidates=50, alpha=0.5")[1]
    assert isinstance(policy, Allox)
    assert (policy.max_candidates, policy.alpha) == (50, 0.5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fifi", "--policy: unknown policy 'fifi'; did you mean fifo or ftf or drf-fifo?"),
        ("", "--policy: unknown policy ''; known: allox, drf-fifo"),
        ("las:treshold_s=3", "--policy las: unknown option 'treshold_s'; did you mean threshold_s?"),
        ("fifo:a=1", "--policy fifo: unknown option 'a'; known: backfill"),
        ("las:threshold_s", "--policy las: 'threshold_s' is not an option; write name=value"),
        ("las:threshold_s=1,", "--policy las: '' is not an option"),
        ("las:threshold_s=1,threshold_s=2", "--policy las: option threshold_s is given twice"),
        ("las:threshold_s=soon", "--policy las: threshold_s: must be a number, not 'soon'"),
        ("las:threshold_s=-1", "las: threshold_s: must be from 0.001 to 1e+12 seconds, not -1.0"),
        ("allox:max_candidates=1.5", "--policy allox: max_candidates: must be a whole number, not '1.5'"),
        ("allox:alpha=2", "allox: alpha: must be above 0 and at most 1, not 2.0"),
    ],
)
def test_what_is_wrong_is_named_in_one_line(text, message):
    with pytest.raises(InputError) as caught:
        resolve_policy(text)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_unknown_names_are_unknown_name_errors(custom):
    for text in ("nope", "las:nope=1", f"{custom}:Nope"):
        with pytest.raises(UnknownNameError):
            resolve_policy(text)


def test_a_class_in_a_file(custom):
    name, policy = resolve_policy(f"{custom}:Nothing")
    assert (name, policy.needs_estimates, policy.options) == ("Nothing", False, (3, 0.5, False, "x"))
    view = cluster_view([Node("n", gpus=1)], [Job("a", gpu_s=1)])
    assert policy.plan(view).state.seen == 1


def test_a_class_in_a_file_with_options(custom):
    name, policy = resolve_policy(f"{custom}:Nothing:limit=7,share=1e-3,eager=yes,tag=a:b")
    assert (name, policy.options) == ("Nothing:limit=7,share=1e-3,eager=yes,tag=a:b", (7, 0.001, True, "a:b"))
    assert resolve_policy(f"{custom}:Nothing:eager=False")[1].options[2] is False
    assert resolve_policy(f"{custom}:Needs:size=3")[1].needs_estimates is True


def test_a_policy_that_asks_for_what_it_did_not_announce_fails_clearly(tmp_path):
    path = tmp_path / "asks.py"
    path.write_text(
        "class P:\n    def plan(self, view):\n        view.remaining_s(view.queued()[0])\n", encoding="utf-8"
    )
    policy = resolve_policy(f"{path}:P")[1]
    with pytest.raises(PolicyError, match="use --estimates oracle"):
        policy.plan(cluster_view([], [Job("a", gpu_s=1)], estimates=False))


@pytest.mark.parametrize(
    ("suffix", "message"),
    [
        ("", "{path}: name the class after the file: {path}:MyPolicy"),
        (":", "{path}: name the class after the file"),
        (":Nothin", "{path}: unknown class 'Nothin'; did you mean Nothing?"),
        (":dataclass", "{path}: unknown class 'dataclass'; "),
        (":NoPolicy", "{path}:38: class NoPolicy has no method plan(self, view) -> Plan"),
        (":Wrong", "{path}:34: Wrong.needs_estimates must be True or False"),
        (":Needs", "--policy {path}:Needs: option size has no default; write {path}:Needs:size=VALUE"),
        (":Needs:size=9", "--policy {path}:Needs: can't be constructed: ValueError: too large"),
        (":Odd", "--policy {path}:Odd: Odd: option things must be annotated float, int, bool or str"),
        (":Unreadable", "--policy {path}:Unreadable: Unreadable.__init__ has an annotation that can't be read"),
        (":Nothing:eager=perhaps", "--policy {path}:Nothing: eager: must be true or false, not 'perhaps'"),
    ],
)
def test_what_is_wrong_with_a_class_is_named(custom, suffix, message):
    with pytest.raises(InputError) as caught:
        resolve_policy(custom + suffix)
    assert str(caught.value).startswith(message.format(path=custom))


@pytest.mark.parametrize(
    ("source", "line", "problem"),
    [
        ("x = 1\nclass P\n", 2, "SyntaxError: "),
        ("import os\n\nimport no_such_module_here\n", 3, "ModuleNotFoundError: No module named 'no_such_module_here'"),
        ("raise RuntimeError('boom\\nsecond')\n", 1, "RuntimeError: boom second"),
        ("def f():\n    return 1 / 0\n\nf()\n", 2, "ZeroDivisionError: division by zero"),
    ],
)
def test_what_is_wrong_with_a_file_is_named_with_its_line(tmp_path, source, line, problem):
    path = tmp_path / "broken.py"
    path.write_text(source, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        resolve_policy(f"{path}:P")
    assert str(caught.value).startswith(f"{path}:{line}: {problem}")
    assert "\n" not in str(caught.value)


def test_a_file_is_run_as_it_is_whatever_was_compiled_before(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = tmp_path / "edited.py"
    for value in (1, 2):
        path.write_text(f"class P:\n    size: int = {value}\n    def plan(self, view): ...\n", encoding="utf-8")
        os.utime(path, (1_800_000_000, 1_800_000_000))
        policy = resolve_policy(f"{path}:P")[1]
        assert (policy.size, policy.__annotations__) == (value, {"size": int})
    assert not (tmp_path / "__pycache__").exists()


def test_the_line_is_known_for_a_relative_path_and_another_encoding_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "latin.py").write_bytes(b"# -*- coding: latin-1 -*-\nNAME = 'J\xfcrg'\nclass P: ...\n")
    with pytest.raises(InputError, match=r"^latin\.py:3: class P has no method plan"):
        resolve_policy("latin.py:P")
    (tmp_path / "broken.py").write_text("\n1 / 0\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"^broken\.py:2: ZeroDivisionError"):
        resolve_policy("broken.py:P")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"nowhere\.py: no such file"):
        resolve_policy(f"{tmp_path}/nowhere.py:P")


def test_files_of_the_same_name_do_not_replace_each_other(tmp_path):
    for folder, value in (("one", 1), ("two", 2)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "p.py").write_text(
            f"class P:\n    value = {value}\n    def plan(self, view): return self.value\n", encoding="utf-8"
        )
    one = resolve_policy(f"{tmp_path}/one/p.py:P")[1]
    two = resolve_policy(f"{tmp_path}/two/p.py:P")[1]
    assert (one.plan(None), two.plan(None)) == (1, 2)
    assert sys.modules[type(one).__module__].P is type(one)


def test_options_of_the_built_in_policies():
    assert options_of(POLICIES["srtf"]) == []
    assert options_of(POLICIES["fifo"]) == [Option("backfill", str, "none", False)]
    assert options_of(Las) == [Option("threshold_s", float, 60.0, False), Option("quantum_s", float, 10.0, False)]


@pytest.mark.parametrize("name", list(POLICIES))
def test_each_policy_says_what_it_is(name):
    policy = POLICIES[name]
    assert policy.__doc__
    assert isinstance(policy.needs_estimates, bool)
    assert isinstance(policy.preemptive, bool)
