"""`emugpu scheduler`: what can be wrong with its arguments and with the cluster is told in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from emugpu.__main__ import main

PLAIN = ("scheduler", "--policy", "fifo")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--policy", "fifi"), "--policy: unknown policy 'fifi'; did you mean fifo or ftf or drf-fifo?"),
        (("--policy", "las:quantum=3"), "--policy las: unknown option 'quantum'; did you mean quantum_s?"),
        (("--policy", "nowhere.py:P"), "nowhere.py: no such file"),
        ((*PLAIN[1:], "--name", "My_Name"), "--name: 'My_Name' must be at most 40 small letters, digits and -"),
        ((*PLAIN[1:], "--label", "team"), "--label: 'team' is not a label; write LABEL=VALUE"),
        ((*PLAIN[1:], "--label", "a==b=c"), "--label: '=b=c' is no value of a label; write at most 63 letters, digits"),
        ((*PLAIN[1:], "--label", "a b=c"), "--label: 'a b' is no key of a label; write a name such as zone"),
        ((*PLAIN[1:], "--label", "a=" + "b" * 64), f"--label: '{'b' * 57}...' is no value of a label"),
        ((*PLAIN[1:], "--until-done", "a==b", "--jobs", "1"), "--until-done: '=b' is no value of a label"),
        ((*PLAIN[1:], "--namespace", "Not Valid"), "--namespace: 'Not Valid' is not a namespace: at most 63"),
        ((*PLAIN[1:], "--namespace", "a.b"), "--namespace: 'a.b' is not a namespace"),
        ((*PLAIN[1:], "--lease-namespace=-a"), "--lease-namespace: '-a' is not a namespace"),
        ((*PLAIN[1:], "--decide-every", "-1"), "--decide-every: must be from 0 to 3600 seconds, not -1"),
        ((*PLAIN[1:], "--metrics-port", "70000"), "--metrics-port: must be from 1 to 65535"),
        ((*PLAIN[1:], "--until-done", "a=b"), "--until-done: say both, --until-done LABEL=VALUE and --jobs N"),
        ((*PLAIN[1:], "--until-done", "a=b", "--jobs", "0"), "--jobs: must be at least 1, not 0"),
        ((*PLAIN[1:], "--until-done", "a", "--jobs", "1"), "--until-done: 'a' is not a label; write LABEL=VALUE"),
        ((*PLAIN[1:], "--epoch", "soon"), "--epoch: 'soon' is no time; write it as 2026-01-02T03:04:05.678Z"),
        ((*PLAIN[1:], "--cluster-costs", "none.yaml"), "none.yaml: can't read the cluster file"),
        ((*PLAIN[1:], "--estimates", "some"), "--estimates: 'some' is none of oracle, none, error:SIGMA"),
        (
            ("--policy", "srtf", "--estimates", "none"),
            "policy srtf needs estimates of run times: use --estimates oracle",
        ),
        (
            (*PLAIN[1:], "--kubeconfig", "none"),
            "--kubeconfig: none is no file; give --kubeconfig FILE or set KUBECONFIG",
        ),
    ],
)
def test_mistakes_are_reported(
    arguments: tuple[str, ...],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "config"
    config.write_text(CONFIG)
    monkeypatch.setenv("KUBECONFIG", str(config))
    assert main(["scheduler", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"emugpu: {message}") or f": {message}" in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


CONFIG = """{apiVersion: v1, kind: Config, current-context: a,
clusters: [{name: a, cluster: {server: "https://127.0.0.1:1"}}], users: [{name: a, user: {token: t}}],
contexts: [{name: a, context: {cluster: a, user: a}}]}
"""


def test_a_context_that_is_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(CONFIG)
    assert main([*PLAIN, "--kubeconfig", str(config), "--context", "b"]) == 2
    assert "--context: unknown context 'b'; known: a" in capsys.readouterr().err


def test_a_file_that_is_no_kubeconfig(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*PLAIN, "--kubeconfig", __file__]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{__file__}: can't be read as a kubeconfig" in line and "give --kubeconfig FILE" in line


def test_an_api_server_that_is_away(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(CONFIG)
    assert main([*PLAIN, "--kubeconfig", str(config)]) == 2
    assert "emugpu: list emujobs: the API server can't be reached" in capsys.readouterr().err
