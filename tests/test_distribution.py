"""What is built holds what is needed, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent


def test_the_wheel_holds_every_file_of_the_package(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("freehold-*.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("freehold/")}
    package = REPOSITORY / "src" / "freehold"
    wanted = {
        f"freehold/{path.relative_to(package).as_posix()}"
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert packed == wanted
    assert "freehold/py.typed" in packed


def test_the_base_install_has_no_torch() -> None:
    pinned = (REPOSITORY / "requirements" / "base.txt").read_text().splitlines()
    names = {line.partition("==")[0] for line in pinned if "==" in line and not line.startswith((" ", "#"))}
    assert not names & {"torch", "numpy", "transformers"}
    assert {"typer", "pydantic", "altair"} <= names
