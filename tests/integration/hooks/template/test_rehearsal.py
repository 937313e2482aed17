"""A rehearsal reports the import error of the next ranks, and never runs the user's code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import training_hooks
from training_hooks.template.rehearsal import VARIABLE, compiling

RAN = "from pathlib import Path\nPath({!r}).write_text('ran')\n"


def rehearse(folder: Path, *arguments: str, **variables: str) -> dict[str, Any]:
    reading, writing = os.pipe()
    environment = {
        **os.environ,
        "PYTHONPATH": training_hooks.HOOKS_PATH,
        "OUTRIDER_DIR": str(folder),
        "OUTRIDER_TEMPLATE": "1",
        VARIABLE: str(writing),
        **variables,
    }
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, pass_fds=[writing], capture_output=True, timeout=300)
    os.close(writing)
    with open(reading, "rb") as answer:
        said: dict[str, Any] = json.loads(answer.read() or b"{}")
    assert (done.returncode, done.stdout) == (0, b""), done
    assert not (folder / "ran").exists(), "the script was run"
    return said


@pytest.mark.parametrize(
    ("script", "module", "refused"),
    [
        ("import own\nx = 1\n", "y = 1\n", ""),
        ("def (\n", "", "train.py line 1: SyntaxError: invalid syntax"),
        ("import json\nreturn 3\n", "", "train.py line 2: SyntaxError: 'return' outside function"),
        ("import own\n", "y = (\n", "own.py line 1: SyntaxError: '(' was never closed"),
        ("x = print\nx()\nimport own\n", "  y = 1\n", "own.py line 1: IndentationError: unexpected indent"),
        ("def main():\n    import own\n", "  y = 1\n", ""),
        ("try:\n    import own\nexcept SyntaxError:\n    own = None\n", "print 'x'\n", ""),
        ("import sys\nif sys.version_info < (3,):\n    import own\n", "print 'x'\n", ""),
        ("from own import there\n", "there = 1\n", ""),
        ("from own import gone\n", "there = 1\n", "train.py line 1: ImportError: cannot import name 'gone' from 'own'"),
        ("from own import gone\n", "def f():\n    global gone\n    gone = 1\nf()\n", ""),
        ("from own import gone\n", "globals().update(gone=1)\n", ""),
        ("import json\njson.gone = 1\nfrom json import gone\n", "", ""),
        ("from sys import path\npath.append('elsewhere')\nimport nosuch\n", "", ""),
        ("import sys as s\ns.path.append('elsewhere')\nimport nosuch\n", "", ""),
        ("import sys\np = sys.path\np.append('elsewhere')\nimport nosuch\n", "", ""),
        ("open('made.py', 'w').write('')\nimport made\n", "", ""),
        (
            "import warnings\nwarnings.filterwarnings('ignore')\nimport nosuch\n",
            "",
            "train.py line 3: ModuleNotFoundError",
        ),
        ("import own\nmain = print\nmain()\n", "import nosuch\n", "own.py line 1: ModuleNotFoundError"),
        ("raise SystemExit\nimport nosuch\n", "", ""),
        ("from __main__ import x\n", "", ""),
        ("if __name__ == '__main__':\n    import nosuch\n", "", "train.py line 2: ModuleNotFoundError"),
        ("import json, nosuch\n", "", "train.py line 1: ModuleNotFoundError: No module named 'nosuch'"),
        (
            "import own\n",
            "\nfrom nosuch.deep import x\n",
            "own.py line 2: ModuleNotFoundError: No module named 'nosuch'",
        ),
        ("from json import nosuch\n", "", "train.py line 1: ImportError: cannot import name 'nosuch' from 'json'"),
        ("from json import decoder\nfrom os import path\n", "", ""),
        ("try:\n    import nosuch\nexcept ImportError:\n    nosuch = None\n", "", ""),
        ("def later():\n    import nosuch\n", "", ""),
        ("if input:\n    import nosuch\n", "", ""),
        ("import sys\nsys.path.append('elsewhere')\nimport nosuch\n", "", ""),
        ("x = '\0'\n", "", "cannot contain null bytes"),
    ],
)
def test_an_error_that_would_end_the_next_ranks_is_reported(
    tmp_path: Path, script: str, module: str, refused: str
) -> None:
    ran = RAN.format(str(tmp_path / "ran"))
    (tmp_path / "train.py").write_text(script + ran)
    (tmp_path / "own.py").write_text(module + ran)
    said = rehearse(tmp_path, "train.py")
    if refused:
        assert refused in said["refused"]
    else:
        assert "refused" not in said, said


def installed(folder: Path, name: str, text: str) -> dict[str, str]:
    """A package of an installation, and the variables with which Python finds it."""
    packages = folder / "lib" / "site-packages"
    packages.mkdir(parents=True)
    (packages / f"{name}.py").write_text(text)
    return {"PYTHONPATH": f"{training_hooks.HOOKS_PATH}{os.pathsep}{packages}"}


def test_the_answer_describes_the_template(tmp_path: Path) -> None:
    threads = "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    variables = installed(tmp_path, "busy", threads)
    (tmp_path / "train.py").write_text("import json\nimport busy\n")
    said = rehearse(tmp_path, "train.py", **variables)
    assert said["threads"] == {"busy": 1}
    assert said["unsafe"].startswith("1 thread runs in it")
    (tmp_path / "train.py").write_text("import json\nprint(json)\nopen('x')\nif json:\n    import csv\n")
    said = rehearse(tmp_path, "train.py", **variables)
    assert (said["unsafe"], said["threads"], said["left_out"], said["torch"]) == ("", {}, {}, "")
    assert "line" in said["notes"][0]


def test_an_import_that_reads_its_rank_is_left_out(tmp_path: Path) -> None:
    variables = installed(tmp_path, "curious", "import os\nRANK = os.environ.get('RANK')\n")
    (tmp_path / "train.py").write_text("import curious\n")
    assert "RANK" in rehearse(tmp_path, "train.py", **variables)["left_out"]["curious"]


def test_a_module_that_is_run_by_name_and_one_of_its_package(tmp_path: Path) -> None:
    package = tmp_path / "lab"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "train.py").write_text("from . import model\nfrom .layers import Layer\n")
    (package / "model.py").write_text("x = 1\n")
    (package / "layers.py").write_text("class Layer:\n")
    said = rehearse(tmp_path, "-m", "lab.train")
    assert said["refused"].startswith("lab/layers.py line 1: IndentationError")
    (package / "layers.py").write_text("class Layers: pass\n")
    said = rehearse(tmp_path, "-m", "lab.train")
    assert said["refused"] == "lab/train.py line 2: ImportError: cannot import name 'Layer' from 'lab.layers'"
    (package / "layers.py").write_text("class Layer: pass\n")
    assert "parked" in rehearse(tmp_path, "-m", "lab.train")


def test_folders_without_an_init_are_packages_as_well(tmp_path: Path) -> None:
    (tmp_path / "src" / "models").mkdir(parents=True)
    (tmp_path / "train.py").write_text("from src.models.net import Net\nimport src.models.net\n")
    net = tmp_path / "src" / "models" / "net.py"
    net.write_text("class Net: pass\n")
    assert "parked" in rehearse(tmp_path, "train.py")
    net.write_text("class Net:\n")
    assert rehearse(tmp_path, "train.py")["refused"].startswith("src/models/net.py line 1: IndentationError")


def test_a_missing_script_is_reported(tmp_path: Path) -> None:
    assert rehearse(tmp_path, "gone.py")["refused"] == "gone.py: No such file or directory"


def test_a_launcher_compiles_the_script_of_its_command(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("x = (\n")
    command = compiling([sys.executable, str(script), "--lr", "1"])
    assert command is not None
    reading, writing = os.pipe()
    subprocess.run(command, env={**os.environ, VARIABLE: str(writing)}, pass_fds=[writing], check=True, timeout=300)
    os.close(writing)
    with open(reading, "rb") as answer:
        assert json.loads(answer.read())["refused"] == f"{script} line 1: SyntaxError: '(' was never closed"
    assert compiling(["mpirun", "-np", "2", "python", "train.py"]) is None
    assert compiling([sys.executable, "-m", "lab.train"]) is None
