"""Which cluster is meant: the files, variables and flags that kubectl knows, and what is said where they are wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from emugpu.kubectl.__main__ import main
from emugpu.kubectl.access import access, context_names
from emulator_runtime.domain.errors import InputError


def config(name: str, *, current: bool = True, namespace: str = "", **user: Any) -> dict[str, Any]:
    context = {"cluster": name, "user": name, **({"namespace": namespace} if namespace else {})}
    return {
        "current-context": name if current else "",
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}", "certificate-authority": "ca.crt"}}],
        "users": [{"name": name, "user": user or {"token": f"token-{name}"}}],
        "contexts": [{"name": name, "context": context}],
    }


def written(path: Path, document: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


def test_a_flag_goes_before_the_variable_and_that_before_the_home(tmp_path: Path) -> None:
    written(tmp_path / ".kube" / "config", config("home"))
    by_variable, by_flag = written(tmp_path / "v", config("variable")), written(tmp_path / "f", config("flag"))
    environ = {"HOME": str(tmp_path)}
    assert access(environ).config.cluster.server == "https://home"
    environ["KUBECONFIG"] = str(by_variable)
    assert access(environ).config.cluster.server == "https://variable"
    assert access(environ, by_flag).config.cluster.server == "https://flag"


def test_several_files_are_one_and_the_first_word_counts(tmp_path: Path) -> None:
    one = written(tmp_path / "a" / "one", config("one", current=False, namespace="lab"))
    two = config("two")
    two["clusters"] += [{"name": "one", "cluster": {"server": "https://never"}}]
    other = written(tmp_path / "b" / "two", two)
    environ = {"KUBECONFIG": os.pathsep.join([str(tmp_path / "none"), str(one), str(other)])}
    found = access(environ)
    assert (found.config.context_name, found.namespace) == ("two", "default")
    assert found.config.cluster.certificate_auth == str(tmp_path / "b" / "ca.crt")
    found = access(environ, context="one")
    assert (found.config.cluster.server, found.namespace) == ("https://one", "lab")
    assert found.config.cluster.certificate_auth == str(tmp_path / "a" / "ca.crt")
    assert access(environ, context="one", namespace="mine").namespace == "mine"
    assert context_names(environ) == ["one", "two"]


def test_credential_plugins_are_told_what_is_asked(tmp_path: Path) -> None:
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "login", "env": [{"name": "A", "value": "b"}]}
    user = access({}, written(tmp_path / "c", config("c", exec=plugin))).config.user
    assert user is not None
    assert user.exec is not None
    assert user.exec.apiVersion == "client.authentication.k8s.io/v1beta1"
    told = {variable.name: variable.value for variable in user.exec.env or ()}
    assert told["A"] == "b"
    assert json.loads(told["KUBERNETES_EXEC_INFO"])["apiVersion"] == "client.authentication.k8s.io/v1"


def test_a_context_needs_no_user(tmp_path: Path) -> None:
    document = config("c")
    del document["contexts"][0]["context"]["user"]
    found = access({}, written(tmp_path / "c", document))
    assert found.config.user is not None
    assert found.config.user.token is None


def without(document: dict[str, Any], name: str) -> dict[str, Any]:
    return {**document, name: []}


@pytest.mark.parametrize(
    ("document", "context", "message"),
    [
        ("- a\n", "", "is no kubeconfig"),
        ("a: [", "", "can't be read as a kubeconfig"),
        ("a: " + "[" * 5_000, "", "can't be read as a kubeconfig"),
        ("a: 2001-99-99", "", "can't be read as a kubeconfig"),
        (config("c"), "d", "--context: unknown context 'd'; known: c"),
        (config("cat"), "cats", "did you mean cat?"),
        (config("c", current=False), "", "names no current context; give --context (c)"),
        (without(config("c"), "contexts"), "", "unknown context 'c'; known: none"),
        (without(config("c", current=False), "contexts"), "", "give --context (none is there)"),
        ({**config("c"), "current-context": "x"}, "", "unknown context 'x'"),
        (without(config("c"), "clusters"), "", "context c: unknown cluster 'c'"),
        (without(config("c"), "users"), "", "context c: unknown user 'c'"),
        (config("c", token=7), "", "its cluster or user can't be used"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, document: object, context: str, message: str) -> None:
    path = tmp_path / "config"
    if isinstance(document, str):
        path.write_text(document, encoding="utf-8")
    else:
        written(path, document)
    with pytest.raises(InputError) as caught:
        access({}, path, context)
    assert message in str(caught.value)


def test_no_cluster_at_all(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no cluster is configured .*/.kube/config.*--kubeconfig"):
        access({"HOME": str(tmp_path)})
    with pytest.raises(InputError, match=r"--kubeconfig: .*none is no file"):
        access({}, tmp_path / "none")


def test_the_program_says_it_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    assert main(["jobs"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("kubectl emugpu: kubeconfig: no cluster is configured")
    path = written(tmp_path / "c", config("c"))
    document = yaml.safe_load(path.read_text())
    document["clusters"][0]["cluster"] = {"server": "http://127.0.0.1:1"}
    written(path, document)
    assert main(["--kubeconfig", str(path), "top"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "the API server can't be reached" in line


def test_a_package_that_is_missing_is_named() -> None:
    code = "import sys; sys.modules['lightkube'] = None; from emugpu.kubectl.__main__ import main; sys.exit(main(['jobs']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line == "kubectl emugpu: the package lightkube is missing: pip install 'emugpu[kubectl]'"
