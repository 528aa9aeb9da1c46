"""Renders the chart with the real helm."""
import json
import os
import pathlib
import shutil
import subprocess

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "helm"
TOOLS = ROOT / "build" / "tools"
SCHEMAS = ROOT / "build" / "schemas"
VARIANTS = [None, *sorted((CHART / "ci").glob("*.yaml"))]  # None: the default values


def tool(name):
    return shutil.which(name, path=f"{TOOLS}:{os.environ['PATH']}")


HELM = tool("helm")
KUBECONFORM = tool("kubeconform")
needs_helm = pytest.mark.skipif(HELM is None, reason="no helm here")


def variant_name(path):
    return path.stem if path else "default"


def helm(*arguments):
    return subprocess.run([HELM, *map(str, arguments)], capture_output=True, text=True)


def value_flags(variant, values):
    flags = ["--values", str(variant)] if variant else []
    for key, value in values.items():
        flags += ["--set-json", f"{key}={json.dumps(value)}"]
    return flags


def render(variant=None, **values):
    """Output of `helm template`; `values` are set by path, such as {"router.httpPort": 80}."""
    run = helm("template", "chat", CHART, "--namespace", "serving", *value_flags(variant, values))
    assert run.returncode == 0, run.stderr
    return run.stdout


def refusal(**values):
    run = helm("template", "chat", CHART, *value_flags(None, values))
    assert run.returncode != 0, values
    return run.stderr


class Manifests:
    """The objects of a render, by kind and name, including those of `helm test`."""

    def __init__(self, text):
        self.all = [one for one in yaml.safe_load_all(text) if one]
        keys = [(one["kind"], one["metadata"]["name"]) for one in self.all]
        assert len(set(keys)) == len(keys), keys

    def kind(self, kind):
        return [one for one in self.all if one["kind"] == kind]

    def one(self, kind, name):
        found = [one for one in self.kind(kind) if one["metadata"]["name"] == name]
        assert found, f"no {kind} {name}"
        return found[0]

    def pods(self):
        """(kind and name, pod spec, pod labels) of every object that creates pods."""
        for one in self.all:
            if one["kind"] == "Pod":
                yield f"Pod {one['metadata']['name']}", one["spec"], one["metadata"]["labels"]
            elif one["kind"] in ("Deployment", "StatefulSet"):
                template = one["spec"]["template"]
                yield f"{one['kind']} {one['metadata']['name']}", template["spec"], template["metadata"]["labels"]
            elif one["kind"] == "LeaderWorkerSet":
                for part in ("leaderTemplate", "workerTemplate"):
                    template = one["spec"]["leaderWorkerTemplate"][part]
                    yield f"LeaderWorkerSet {one['metadata']['name']} {part}", template["spec"], template["metadata"]["labels"]


def containers(spec):
    return spec.get("initContainers", []) + spec["containers"]


def selects(selector, labels):
    return set(selector.items()) <= set(labels.items())
