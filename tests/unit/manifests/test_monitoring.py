"""manifests/monitoring: alerts that fire when they should, dashboards of our metrics, and a scrape that is allowed.

Whether the queries of the dashboards find data is tested by tests/local/node/test_prometheus.py.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.manifests.alert_cases import FIRES, QUIET, Case
from tests.unit.manifests.test_manifests import MANIFESTS, NAMESPACE, PODS, PORTS, ROOT, documents, the

FOLDER = MANIFESTS / "monitoring"
SITE = "https://docs.outrider.invalid/"
REFERENCE = (ROOT / "docs/reference/metrics.md").read_text()
DASHBOARDS = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("dashboards/*.json"))}
SCRAPE = {document["kind"]: document for document in documents(FOLDER / "scrape.yaml")}
(RULES,) = documents(FOLDER / "alerts.yaml")
ALERTS = {rule["alert"]: rule for group in RULES["spec"]["groups"] for rule in group["rules"]}
NEEDS_PROMTOOL = pytest.mark.skipif(not shutil.which("promtool"), reason="needs promtool (Debian: prometheus)")


def promtool(*arguments: str, cwd: Path) -> None:
    done = subprocess.run(["promtool", *arguments], cwd=cwd, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """A folder with the rules as a file of Prometheus itself."""
    (tmp_path / "alerts.yaml").write_text(yaml.safe_dump(RULES["spec"]))
    return tmp_path


# -- alerts ---------------------------------------------------------------------------------------------------------
@NEEDS_PROMTOOL
def test_prometheus_accepts_the_rules(rules: Path) -> None:
    promtool("check", "rules", "--lint=all", "--lint-fatal", "alerts.yaml", cwd=rules)


def test_each_alert_has_a_case() -> None:
    assert list(FIRES) == list(ALERTS)


@NEEDS_PROMTOOL
def test_each_alert_fires_and_only_then(rules: Path) -> None:
    tests = [{"interval": "1m", "input_series": series(case.series), "alert_rule_test": [expected(name, case)]}
             for name, case in FIRES.items()]  # fmt: skip
    quiet = [{"eval_time": "170m", "alertname": name} for name in ALERTS]
    tests.append({"interval": "1m", "input_series": series(QUIET), "alert_rule_test": quiet})
    plan = {"rule_files": ["alerts.yaml"], "evaluation_interval": "1m", "tests": tests}
    (rules / "tests.yaml").write_text(yaml.safe_dump(plan))
    promtool("test", "rules", "tests.yaml", cwd=rules)


def series(of: dict[str, str]) -> list[dict[str, str]]:
    return [{"series": name, "values": values} for name, values in of.items()]


def expected(name: str, case: Case) -> dict[str, Any]:
    about = {"summary": case.summary, "runbook_url": ALERTS[name]["annotations"]["runbook_url"]}
    fired = {"exp_labels": {**case.labels, "severity": case.severity}, "exp_annotations": about}
    return {"eval_time": case.at, "alertname": name, "exp_alerts": [fired]}


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_leads_to_its_section_of_the_runbook(name: str) -> None:
    page, _, anchor = ALERTS[name]["annotations"]["runbook_url"].removeprefix(SITE).partition("#")
    sections = re.findall(r"^## (\w+)$", (ROOT / "docs" / page.replace(".html", ".md")).read_text(), re.MULTILINE)
    assert anchor == name.lower()
    assert name in sections
    assert ALERTS[name]["labels"]["severity"] in ("critical", "warning")


def test_the_runbook_has_no_other_alert() -> None:
    page = (ROOT / "docs/how-to/alerts.md").read_text()
    assert re.findall(r"^## (Outrider\w+)$", page, re.MULTILINE) == list(ALERTS)


# -- dashboards -----------------------------------------------------------------------------------------------------
def panels() -> Iterator[tuple[str, dict[str, Any]]]:
    return ((name, panel) for name, board in DASHBOARDS.items() for panel in board["panels"] if panel["type"] != "row")


def queries() -> Iterator[tuple[str, str]]:
    """Every query of alerts and panels, by where it stands."""
    yield from ((name, rule["expr"]) for name, rule in ALERTS.items())
    yield from (
        (f"{name}: {panel['title']}", target["expr"]) for name, panel in panels() for target in panel["targets"]
    )


def test_each_query_asks_for_metrics_that_there_are() -> None:
    known = {*re.findall(r"^\| `(outrider_\w+)` \|", REFERENCE, re.MULTILINE)}
    histograms = re.findall(r"^\| `(outrider_\w+)` \| histogram", REFERENCE, re.MULTILINE)
    known |= {f"{name}_{part}" for name in histograms for part in ("bucket", "sum", "count")}
    unknown = {where: set(re.findall(r"\boutrider_\w+", query)) - known for where, query in queries()}
    assert {where: names for where, names in unknown.items() if names} == {}


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_dashboard_can_be_read(name: str) -> None:
    board = DASHBOARDS[name]
    assert board["uid"] == f"outrider-{name}"
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert all(x < 24 for x, _ in cells), panel["title"]
        taken |= cells
    titles = [panel["title"] for panel in board["panels"]]
    assert len(set(titles)) == len(titles)


def test_a_panel_says_what_it_shows_in_a_unit_of_any_data_source() -> None:
    for name, panel in panels():
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"] in ("none", "s", "percentunit", "bytes", "reqps", "cps")
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        variables = {variable["name"] for variable in DASHBOARDS[name]["templating"]["list"]}
        used = {word for target in panel["targets"] for word in re.findall(r"\$(\w+)", target["expr"])}
        assert used <= variables | {"__rate_interval", "__range"}, panel["title"]


# -- the scrape -----------------------------------------------------------------------------------------------------
def test_the_monitor_finds_the_masters_port_and_keeps_the_jobs_labels() -> None:
    spec = SCRAPE["PodMonitor"]["spec"]
    (endpoint,) = spec["podMetricsEndpoints"]
    assert spec["namespaceSelector"] == {"matchNames": [NAMESPACE]}
    assert spec["selector"]["matchLabels"].items() <= PODS["master"]["metadata"]["labels"].items()
    assert endpoint["port"] in PORTS["master"]
    assert endpoint["honorLabels"] is True


def test_the_account_of_the_scrape_may_read_the_metrics() -> None:
    secret, account = SCRAPE["Secret"]["metadata"], SCRAPE["ServiceAccount"]["metadata"]["name"]
    (endpoint,) = SCRAPE["PodMonitor"]["spec"]["podMetricsEndpoints"]
    assert endpoint["authorization"]["credentials"]["name"] == secret["name"]
    assert secret["annotations"]["kubernetes.io/service-account.name"] == account
    assert (
        SCRAPE["ClusterRoleBinding"]["roleRef"]["name"]
        == the("ClusterRole", "outrider-metrics-reader")["metadata"]["name"]
    )
    assert [subject["name"] for subject in SCRAPE["ClusterRoleBinding"]["subjects"]] == [account]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl renders the folder")
def test_kustomize_makes_one_config_map_of_both_dashboards() -> None:
    done = subprocess.run(["kubectl", "kustomize", str(FOLDER)], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    rendered = [*yaml.safe_load_all(done.stdout)]
    (boards,) = (each for each in rendered if each["kind"] == "ConfigMap")
    assert {name: json.loads(text) for name, text in boards["data"].items()} == {
        f"{name}.json": board for name, board in DASHBOARDS.items()
    }
    assert boards["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert {each["metadata"].get("namespace", "monitoring") for each in rendered} == {"monitoring"}
