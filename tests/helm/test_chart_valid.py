"""Checks every variant of the chart's values with helm's own checks and with the API's schemas."""
import json
import re
import subprocess
import sys

import pytest
import yaml
from chart import (
    CHART,
    KUBECONFORM,
    SCHEMAS,
    VARIANTS,
    Manifests,
    helm,
    needs_helm,
    refusal,
    render,
    value_flags,
    variant_name,
)

needs_schemas = pytest.mark.skipif(KUBECONFORM is None or not SCHEMAS.exists(), reason="no kubeconform or no schemas here")
variants = pytest.mark.parametrize("variant", VARIANTS, ids=variant_name)


def kubeconform(text, *flags):
    where = f"{SCHEMAS}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
    return subprocess.run([KUBECONFORM, "-strict", "-schema-location", where, *flags], input=text, capture_output=True, text=True)


@needs_helm
@variants
def test_lint(variant):
    run = helm("lint", "--strict", CHART, *value_flags(variant, {}))
    assert run.returncode == 0, run.stdout + run.stderr


@needs_helm
@variants
@needs_schemas
def test_objects_match_the_api_schemas(variant):
    text = render(variant)
    run = kubeconform(text, "-summary", "-output", "json")
    n_objects = len(Manifests(text).all)
    assert json.loads(run.stdout)["summary"] == {"valid": n_objects, "invalid": 0, "errors": 0, "skipped": 0}, run.stdout


@needs_helm
@needs_schemas
def test_the_schemas_find_a_misspelled_field():
    text = render().replace("terminationGracePeriodSeconds", "terminationGraceSeconds")
    run = kubeconform(text)
    assert run.returncode != 0 and "terminationGraceSeconds" in run.stdout


@needs_helm
@pytest.mark.parametrize("values, says", [
    ({"nodes": 2, "replicas": 2}, "second release"),
    ({"nodes": 2, "hpa.enabled": True}, "nodes > 1"),
    ({"leaderWorkerSet.enabled": True}, "leaderWorkerSet"),
    ({"hpa.enabled": True, "keda.enabled": True, "keda.serverAddress": "http://prometheus:9090"}, "enable one"),
    ({"keda.enabled": True}, "keda.serverAddress"),
    ({"router.journal.existingSecret": "s"}, "surge: false"),
    ({"router.journal.existingSecret": "s", "surge": False, "replicas": 2}, "a release a pipeline"),
    ({"router.journal.volume.persistentVolumeClaim.claimName": "c"}, "surge: false"),
    ({"router.journal.existingSecret": "s", "router.journal.volume.emptyDir.medium": ""}, "in Redis or on a volume"),
    ({"inferencePool.enabled": True}, "inferencePool.endpointPicker"),
    ({"kvEvents.enabled": True, "auth.existingSecret": "keys"}, "check keys in the gateway"),
    ({"device": "tpu"}, "device"),
    ({"stagesPerNode": 0}, "stagesPerNode"),
    ({"runAsUser": 0}, "runAsUser"),
    ({"stages": 2}, "stages"),
    ({"router.port": 1}, "port"),
    ({"image.worker.digest": "latest"}, "digest"),
    ({"worker.kvMemory": "much"}, "kvMemory"),
    ({"model.kvDtype": "int4"}, "kvDtype"),
    ({"model.hiddenDtype": "fp8"}, "hiddenDtype"),
], ids=lambda value: ",".join(value) if isinstance(value, dict) else "")
def test_impossible_values_are_refused_by_name(values, says):
    assert says in refusal(**values)


def test_the_schema_has_exactly_the_chart_s_values():
    def compare(schema, value, path):
        if "properties" not in schema or not isinstance(value, dict) or path[-1:] == ["resources"]:
            return
        assert schema["additionalProperties"] is False, path
        assert set(schema["properties"]) - {"global"} == set(value), path
        for key, inner in value.items():
            compare(schema["properties"][key], inner, path + [key])

    compare(json.loads((CHART / "values.schema.json").read_text()), yaml.safe_load((CHART / "values.yaml").read_text()), [])


def test_the_readme_is_generated_from_the_values():
    subprocess.run([sys.executable, CHART / "readme.py", "--check"], check=True)


def test_the_chart_has_the_project_s_version():
    version = re.search(r"project\(stagecoach VERSION (\S+)", (CHART.parent / "CMakeLists.txt").read_text())[1]
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == version
