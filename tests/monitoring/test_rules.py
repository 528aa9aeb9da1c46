"""Checks the files of the alert rules and of the dashboard, without a server."""
import json
import pathlib
import re
import subprocess

import pytest
import yaml
from prometheus_server import PROMTOOL, ROOT, RULES

DASHBOARDS = sorted((ROOT / "deploy" / "grafana").glob("*.json"))
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="no promtool here")


def alerts():
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


@needs_promtool
def test_rules_are_valid():
    subprocess.run([PROMTOOL, "check", "rules", RULES], check=True)


@needs_promtool
def test_every_alert_is_quiet_fires_and_resolves():
    subprocess.run([PROMTOOL, "test", "rules", "stagecoach.test.yml"], cwd=RULES.parent, check=True)


def test_every_alert_has_its_unit_tests():
    tests = yaml.safe_load((RULES.parent / "stagecoach.test.yml").read_text())["tests"]
    cases = [case for test in tests for case in test["alert_rule_test"]]
    for alert in alerts():
        mine = [case for case in cases if case["alertname"] == alert["alert"]]
        assert any(case.get("exp_alerts") for case in mine), alert["alert"]
        assert any(not case.get("exp_alerts") for case in mine), alert["alert"]


def test_every_alert_s_fault_has_a_live_test():
    staged = re.findall(r'"(Stagecoach\w+)"', pathlib.Path(__file__).with_name("test_live.py").read_text())
    assert {alert["alert"] for alert in alerts()} == set(staged)


def test_every_alert_has_its_section_in_the_runbook():
    sections = re.findall(r"^## (\S+)$", (RULES.parent / "RUNBOOK.md").read_text(), re.M)
    assert sorted(sections) == sorted(alert["alert"] for alert in alerts())
    for alert in alerts():
        assert alert["annotations"]["runbook"] == f"RUNBOOK.md#{alert['alert'].lower()}"


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_panels_have_unique_ids_and_places(path):
    panels = json.loads(path.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24 and not cells & taken, panel["title"]
        taken |= cells
