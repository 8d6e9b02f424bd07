"""What is built works where the checkout isn't: the wheel has its data files and nothing that doesn't belong in it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "cluster_harness",
    "deviceplugin",
    "emugpu",
    "emulator_runtime",
    "operators",
    "scheduler_sims",
    "sharing_manager",
}


def test_the_wheel_is_complete_and_runs(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--quiet"]
    subprocess.run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(tmp_path), str(ROOT)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} - PACKAGES == {f"emugpu-{wheel.name.split('-')[1]}.dist-info"}
    assert not [name for name in names if "__pycache__" in name or name.startswith("e2e/")]
    doubles = [name for name in names if "testing" in name or "fake" in name]
    assert {name.rsplit("/", 1)[0] for name in doubles} == {"scheduler_sims/testing"}  # for users who write policies
    assert {"cluster_harness/tools/go.mod", "sharing_manager/py.typed"} <= set(names)
    cuda = "emulator_runtime/cuda"
    assert {f"{cuda}/src/core/core.h", f"{cuda}/src/redirect.c", f"{cuda}/symbols/driver.txt"} <= set(names)

    site = tmp_path / "site"
    subprocess.run([*pip, "install", "--no-deps", "--target", str(site), str(wheel)], check=True)
    example = ROOT / "examples" / "allox-40"
    code = "import sys, emugpu.__main__ as front; print(front.__file__, file=sys.stderr); sys.exit(front.main(sys.argv[1:]))"
    arguments = [
        "simulate",
        str(example / "workload.csv"),
        "--cluster",
        str(example / "cluster.yaml"),
        "--policy",
        "allox",
    ]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments, "--out", str(tmp_path / "out")],
        env={**os.environ, "PYTHONPATH": str(site)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(site) in done.stderr
    assert "32.5" in done.stdout
    assert (tmp_path / "out" / "report.html").exists()
