"""Which API server is meant: the files, variables and flags that kubectl knows, and the errors where they are wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

from emugpu.kubectl.__main__ import main
from emulator_runtime.domain.errors import InputError
from operators.kube.kubeconfig import connection, context_names, file_with


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
    (path.parent / "ca.crt").touch()
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


@pytest.fixture
def service_account(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """What a pod has: a mounted token, and the variables of the API server's Service."""
    directory = tmp_path / "serviceaccount"
    directory.mkdir()
    for name, text in (("token", "of-the-pod\n"), ("ca.crt", ""), ("namespace", "emugpu-system")):
        (directory / name).write_text(text, encoding="utf-8")
    return directory, {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def test_the_flag_precedes_the_variable_and_the_variable_precedes_the_home_directory(tmp_path: Path) -> None:
    written(tmp_path / ".kube" / "config", config("home"))
    by_variable, by_flag = written(tmp_path / "v", config("variable")), written(tmp_path / "f", config("flag"))
    environ = {"HOME": str(tmp_path)}
    assert connection(environ=environ).server == "https://home"
    environ["KUBECONFIG"] = str(by_variable)
    assert connection(environ=environ).server == "https://variable"
    assert connection(by_flag, environ=environ).server == "https://flag"


def test_in_a_pod_every_kubeconfig_precedes_the_service_account(
    tmp_path: Path, service_account: tuple[Path, dict[str, str]]
) -> None:
    directory, environ = service_account
    environ["HOME"] = str(tmp_path)

    def server(**more: str) -> str:
        return connection(environ=environ | more, service_account=directory).server

    assert server() == "https://10.96.0.1:443"
    assert server(KUBERNETES_SERVICE_HOST="fd00::1") == "https://[fd00::1]:443"
    assert server(KUBECONFIG=str(written(tmp_path / "explicit", config("explicit")))) == "https://explicit"
    written(tmp_path / ".kube" / "config", {"contexts": []})
    assert server() == "https://10.96.0.1:443"
    written(tmp_path / ".kube" / "config", config("home"))
    assert server() == "https://home"


def test_a_pod_has_the_namespace_of_its_service_account(service_account: tuple[Path, dict[str, str]]) -> None:
    directory, environ = service_account
    found = connection(environ=environ, service_account=directory)
    assert (found.namespace, found.user["tokenFile"]) == ("emugpu-system", str(directory / "token"))
    assert connection(namespace="lab", environ=environ, service_account=directory).namespace == "lab"


def test_an_explicit_kubeconfig_that_is_missing_is_an_error_in_a_pod_too(
    tmp_path: Path, service_account: tuple[Path, dict[str, str]]
) -> None:
    directory, environ = service_account
    missing = str(tmp_path / "none")
    with pytest.raises(InputError, match=rf"KUBECONFIG: names no file that exists \({missing}\)"):
        connection(environ=environ | {"KUBECONFIG": missing}, service_account=directory)


def test_several_files_are_merged_and_the_first_definition_counts(tmp_path: Path) -> None:
    one = written(tmp_path / "a" / "one", config("one", current=False, namespace="lab"))
    two = config("two")
    two["clusters"] += [{"name": "one", "cluster": {"server": "https://never"}}]
    other = written(tmp_path / "b" / "two", two)
    last = written(tmp_path / "c" / "three", config("three"))
    environ = {"KUBECONFIG": os.pathsep.join(map(str, [tmp_path / "none", one, other, last]))}
    found = connection(environ=environ)
    assert (found.context, found.namespace) == ("two", "default")
    assert found.cluster["certificate-authority"] == str(tmp_path / "b" / "ca.crt")
    found = connection(context="one", environ=environ)
    assert (found.server, found.namespace) == ("https://one", "lab")
    assert found.cluster["certificate-authority"] == str(tmp_path / "a" / "ca.crt")
    assert connection(context="one", namespace="mine", environ=environ).namespace == "mine"
    assert context_names(environ=environ) == ["one", "three", "two"]


def test_a_credential_plugin_beside_the_file_is_found_there(tmp_path: Path) -> None:
    def command(text: str) -> str:
        plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": text}
        user = connection(written(tmp_path / "c", config("c", exec=plugin)), environ={}).user
        return str(user["exec"]["command"])

    assert command("./bin/login") == str(tmp_path / "bin" / "login")
    assert command("/opt/login") == "/opt/login"
    assert command("aws") == "aws"  # looked up in PATH


def test_a_context_needs_no_user(tmp_path: Path) -> None:
    document = config("c")
    del document["contexts"][0]["context"]["user"]
    assert connection(written(tmp_path / "c", document), environ={}).user == {}


def without(document: dict[str, Any], name: str) -> dict[str, Any]:
    return {**document, name: []}


def with_cluster(**members: object) -> dict[str, Any]:
    return {**config("c"), "clusters": [{"name": "c", "cluster": {"server": "https://c", **members}}]}


SKIPS_TLS = {"insecure-skip-tls-verify": "false"}  # as a text, which is not empty and therefore true in Python


@pytest.mark.parametrize(
    ("document", "context", "message"),
    [
        ("- a\n", "", "is no kubeconfig"),
        ("job_id,submit_s\n", "", "is no kubeconfig"),
        ("clusters: 5\n", "", "clusters: must be a list, not a number"),
        ("contexts: [c]\n", "", "contexts[0]: must be an object, not a string"),
        ("contexts: [{name: [x]}]\n", "", "contexts[0].name: must be a string, not a list"),
        ("users: [{name: {a: b}}]\n", "", "users[0].name: must be a string, not an object"),
        ("a: [", "", "can't be read as a kubeconfig"),
        ("a: " + "[" * 5_000, "", "can't be read as a kubeconfig"),
        ("a: 2001-99-99", "", "can't be read as a kubeconfig"),
        ("a: \udcff", "", "can't be read as a kubeconfig"),
        (config("c"), "d", "--context: unknown context 'd'; known: c"),
        (config("cat"), "cats", "did you mean cat?"),
        (config("c", current=False), "", "names no current context; give --context (c)"),
        (without(config("c"), "contexts"), "", "unknown context 'c'; known: none"),
        (without(config("c", current=False), "contexts"), "", "give --context (it has no contexts)"),
        ({**config("c"), "current-context": "x"}, "", "unknown context 'x'"),
        (without(config("c"), "clusters"), "", "context c: unknown cluster 'c'"),
        (without(config("c"), "users"), "", "context c: unknown user 'c'"),
        (config("c", token=7), "", "users[0].user.token: must be a string, not a number"),
        (config("c", exec=5), "", "users[0].user.exec: must be an object, not a number"),
        (config("c", exec={"args": "abc"}), "", "users[0].user.exec.args: must be a list, not a string"),
        (config("c", exec={"args": ["a", 5]}), "", "users[0].user.exec.args[1]: must be a string, not a number"),
        (config("c", exec={"env": [{"name": "a", "value": 1}]}), "", "exec.env[0].value: must be a string"),
        (config("c", exec={"provideClusterInfo": "no"}), "", "provideClusterInfo: must be true or false, not a string"),
        (config("c", tokenFile="gone"), "", "gone is no file"),
        (config("c", **{"as-groups": ["g"]}), "", "as-groups is not supported"),
        (with_cluster(server=5), "", "clusters[0].cluster.server: must be a string, not a number"),
        (with_cluster(**SKIPS_TLS), "", "insecure-skip-tls-verify: must be true or false, not a string"),
        (
            with_cluster(extensions=[{"extension": date(2026, 1, 2)}]),
            "",
            "extensions[0].extension: can't be written as JSON",
        ),
        (with_cluster(server="c:6443"), "", "must begin with https:// or http://, not be 'c:6443'"),
        (with_cluster(**{"proxy-url": "socks5://p"}), "", "proxy-url must begin with https:// or http://"),
        (with_cluster(**{"certificate-authority": "/nowhere/ca"}), "", "certificate-authority: /nowhere/ca is no file"),
    ],
)
def test_the_error_names_the_file_and_what_is_wrong(
    tmp_path: Path, document: object, context: str, message: str
) -> None:
    path = tmp_path / "config"
    if isinstance(document, str):
        path.write_text(document, encoding="utf-8", errors="surrogateescape")
    else:
        written(path, document)
    for found in (lambda: connection(path, context, environ={}), lambda: connection(None, context, environ=by(path))):
        with pytest.raises(InputError) as caught:
            found()
        text = str(caught.value)
        assert message in text and "\n" not in text
        assert str(path) in text or "--context" in text


def by(path: Path) -> dict[str, str]:
    return {"KUBECONFIG": str(path)}


def test_members_that_are_null_or_unknown_are_left_out(tmp_path: Path) -> None:
    document = config("c", token="t", password=None, exec=None, later={"a": 1}) | {"preferences": {}}
    assert connection(written(tmp_path / "c", document), environ={}).user == {"token": "t"}


def test_a_tilde_is_a_character_of_a_file_name_as_in_kubectl() -> None:
    with pytest.raises(InputError, match=r"KUBECONFIG: names no file that exists \(~nosuchuser/x\)"):
        connection(environ=by(Path("~nosuchuser/x")))


def test_the_file_with_a_context_alone_means_what_all_files_mean(tmp_path: Path) -> None:
    context = {"contexts": config("c")["contexts"]}
    rest = {name: config("c")[name] for name in ("clusters", "users")}

    def found(*documents: dict[str, Any]) -> Path:
        files = [written(tmp_path / f"{number}.yaml", each) for number, each in enumerate(documents)]
        return file_with("c", environ={"KUBECONFIG": os.pathsep.join(map(str, files))})

    assert found(config("b"), config("c")) == tmp_path / "1.yaml"
    assert (
        found(context | {"users": rest["users"], "clusters": rest["clusters"]}, with_cluster()) == tmp_path / "0.yaml"
    )
    fix = r"\(kubectl config view --flatten --minify --context c\) and give --kubeconfig FILE"
    with pytest.raises(InputError, match=rf"--context c: is in .*0.yaml, but its cluster c in another file; .*{fix}"):
        found(context, rest)
    with pytest.raises(InputError, match="its user c in another file"):
        found(context | {"clusters": rest["clusters"]}, rest)
    with pytest.raises(InputError, match=r"is in .*1.yaml, but its cluster c in another file"):
        found({"clusters": with_cluster(server="https://first")["clusters"]}, config("c"))
    with pytest.raises(InputError, match="--context c: unknown cluster 'c'; known: none"):
        found(context)


def test_no_cluster_at_all(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no cluster is configured .*/.kube/config.*--kubeconfig"):
        connection(environ={"HOME": str(tmp_path)})
    with pytest.raises(InputError, match=r"--kubeconfig: .*none is no file"):
        connection(tmp_path / "none", environ={})


def test_the_kubectl_plugin_prints_the_error_as_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    assert main(["jobs"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("kubectl emugpu: kubeconfig: no cluster is configured")
    document = config("c") | {"clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}]}
    assert main(["--kubeconfig", str(written(tmp_path / "c", document)), "top"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "the API server can't be reached" in line


def test_a_missing_package_is_named(tmp_path: Path) -> None:
    code = "import sys; sys.modules['kubernetes'] = None; from emugpu.kubectl.__main__ import main; sys.exit(main(['jobs']))"
    environ = {**os.environ, "KUBECONFIG": str(written(tmp_path / "c", config("c")))}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environ)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line == "kubectl emugpu: the package kubernetes is missing: pip install 'emugpu[kubectl]'"


def test_commands_that_need_no_cluster_do_not_import_the_client_library() -> None:
    code = "import sys; from emugpu.kubectl.__main__ import main; main(['--help'])"
    check = "import operators.kube.client; assert not {'kubernetes', 'aiohttp'} & sys.modules.keys()"
    code = f"import contextlib\nwith contextlib.suppress(SystemExit):\n    {code}\n{check}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
