"""Takes the pictures of the dashboard that the documentation shows: `python examples/digits/picture.py`.

The page is that of the demo's job, which trains, loses a process and a member, and recovers. It needs the extra
`browser` and chromium.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

HERE = Path(__file__).resolve().parent
OUTRIDER = str(Path(sys.executable).parent / "outrider")
MINUTES = 3 * 60_000
RECOVERED = "details.fault:has-text('recovered in') >> nth=1"
"""The second fault whose recovery is over."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE.parent.parent / "docs")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        demo = [sys.executable, "-P", str(HERE / "demo.py"), "--job", "digits", "--out", f"{folder}/out"]
        running = subprocess.Popen(demo, stdout=subprocess.DEVNULL)
        try:
            photographed(args.out)
        finally:
            running.wait(300)
    return running.returncode


def photographed(out: Path) -> None:
    """The page with both faults, in both themes, while the job trains."""
    while "digits" not in subprocess.run([OUTRIDER, "status"], capture_output=True, text=True).stdout:
        pass
    serving = subprocess.Popen([OUTRIDER, "dashboard", "digits"], stdout=subprocess.PIPE, text=True)
    assert serving.stdout is not None
    found = re.search(r"http://\S+", serving.stdout.readline())
    assert found is not None
    try:
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            pages = {scheme: opened(browser, scheme, found[0]) for scheme in ("light", "dark")}
            pages["light"].wait_for_selector(RECOVERED, timeout=MINUTES)
            for scheme, page in pages.items():
                page.wait_for_selector(RECOVERED)
                page.screenshot(path=str(out / f"dashboard-{scheme}.png"))
            browser.close()
    finally:
        serving.terminate()
        serving.wait(30)


def opened(browser: Any, scheme: str, address: str) -> Any:
    page = browser.new_context(viewport={"width": 1180, "height": 1000}, color_scheme=scheme).new_page()
    page.goto(address)
    return page


if __name__ == "__main__":
    raise SystemExit(main())
