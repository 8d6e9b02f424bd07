"""The same complaint is printed when it is new, then ever more rarely while it goes on, and counted all the time."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from emulator_runtime.domain.errors import PolicyError
from emulator_runtime.domain.units import NS_PER_S
from operators.kube.timestamps import ns_of
from operators.objects.scheduler_notes import LONGEST_MESSAGE, REASONS, SchedulingProblem, read_problem
from operators.scheduling.complaints import Complaint, ComplaintLog, Kind, Report, complaint_of
from scheduler_sims.loop.checks import PlanRefusedError, PolicyFailedError

START_NS = ns_of("2026-01-01T12:00:00Z") or 0
REFUSED = Complaint(Kind.PLAN_REFUSED, "policy p: the plan places job 'a' on n1: 2 of 2 CPUs are free", "a", "uid-a")


def due_s(log: ComplaintLog, complaint: Complaint, seconds: range) -> list[tuple[int, int]]:
    """(second, count) of the reports where the complaint comes at each of these seconds."""
    reports = [(second, log.add(complaint, START_NS + second * NS_PER_S)) for second in seconds]
    return [(second, report.count) for second, report in reports if report is not None]


def test_a_complaint_that_goes_on_is_reported_at_once_and_then_ever_more_rarely() -> None:
    assert due_s(ComplaintLog(), REFUSED, range(200)) == [(0, 1), (10, 11), (30, 31), (70, 71), (150, 151)]


def test_reports_never_end_while_the_complaint_goes_on() -> None:
    reported = [second for second, _ in due_s(ComplaintLog(), REFUSED, range(0, 6000, 5))]
    pauses = [later - earlier for earlier, later in pairwise(reported)]
    assert pauses == [10, 20, 40, 80, 160, 320, *[640] * 8]


def test_another_amount_of_free_cpus_is_the_same_complaint_and_another_job_is_not() -> None:
    log = ComplaintLog()
    assert log.add(REFUSED, START_NS) is not None
    changed = Complaint(Kind.PLAN_REFUSED, "policy p: ...: 1 of 2 CPUs are free", "a", "uid-a")
    assert log.add(changed, START_NS + NS_PER_S) is None
    report = log.add(changed, START_NS + 10 * NS_PER_S)
    assert report is not None and (report.complaint.text, report.count) == (changed.text, 3)
    assert log.add(Complaint(Kind.PLAN_REFUSED, REFUSED.text, "b", "uid-b"), START_NS) is not None


def test_a_job_that_fits_nowhere_for_another_reason_is_reported_at_once() -> None:
    log = ComplaintLog()
    reasons = ("needs 8 CPUs on one node; the largest node has 2", "needs 8 CPUs on one node; the largest node has 4")
    assert all(log.add(Complaint(Kind.DOES_NOT_FIT, text, "a", retry=False), START_NS) for text in reasons)


def test_after_the_job_has_started_or_a_long_silence_the_complaint_is_new() -> None:
    log = ComplaintLog()
    log.add(REFUSED, START_NS)
    log.resolve("b")
    assert log.add(REFUSED, START_NS + NS_PER_S) is None
    log.resolve("a")
    again = log.add(REFUSED, START_NS + 2 * NS_PER_S)
    assert again is not None and again.count == 1
    later = log.add(REFUSED, START_NS + 643 * NS_PER_S)
    assert later is not None and later.count == 1


def test_a_report_in_words_and_as_json() -> None:
    report = Report(REFUSED, 1, START_NS, START_NS)
    assert report.in_words() == REFUSED.text
    report = Report(REFUSED, 12, START_NS, START_NS + 10 * NS_PER_S)
    assert report.in_words() == f"{REFUSED.text} (12 times since 12:00:00 UTC)"
    assert json.loads(report.as_json()) == {
        "at": "2026-01-01T12:00:10.000000Z",
        "complaint": REFUSED.text,
        "kind": "plan-refused",
        "job": "a",
        "retry": True,
        "count": 12,
        "first_at": "2026-01-01T12:00:00.000000Z",
        "last_at": "2026-01-01T12:00:10.000000Z",
    }
    about_no_job = Report(Complaint(Kind.POLICY_FAILED, "policy p: KeyError"), 1, START_NS, START_NS)
    assert "job" not in json.loads(about_no_job.as_json())


def test_the_annotation_is_read_again_and_every_kind_has_its_reason() -> None:
    assert tuple(kind.reason for kind in Kind) == REASONS
    found = read_problem(Report(REFUSED, 1, START_NS, START_NS).annotation())
    assert found == SchedulingProblem("PlanRefused", REFUSED.text, "2026-01-01T12:00:00.000000Z")
    long = SchedulingProblem("DoesNotFit", "x" * 5000, "2026-01-01T12:00:00Z")
    assert len(getattr(read_problem(long.to_json()), "message", "")) == LONGEST_MESSAGE


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "[]",
        '{"reason": "DoesNotFit"}',
        '{"reason": "Accepted", "message": "all is well", "at": "2026-01-01T00:00:00Z"}',
        '{"reason": "DoesNotFit", "message": 3, "at": "2026-01-01T00:00:00Z"}',
    ],
)
def test_an_annotation_of_anybody_else_says_nothing(text: str) -> None:
    assert read_problem(text) is None


def test_errors_of_the_loop_become_complaints() -> None:
    def of(error: PolicyError) -> Complaint:
        return complaint_of(error, "p", lambda job_id: f"uid-{job_id}")

    refused = PlanRefusedError("a", "it needs 8 CPUs", never=True)
    assert of(refused) == Complaint(Kind.PLAN_REFUSED, "policy p: it needs 8 CPUs", "a", "uid-a", retry=False)
    failed = PolicyFailedError("the policy failed at 3.000 s: KeyError", "the policy failed: KeyError")
    assert of(failed) == Complaint(Kind.POLICY_FAILED, "policy p: the policy failed: KeyError")
    assert of(PolicyError("woken too often")) == Complaint(Kind.POLICY_FAILED, "policy p: woken too often")
