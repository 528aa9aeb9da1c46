"""Agent frameworks and client libraries with a tool called `departures`: each program of the folder `frameworks` runs
against one server. tests/run.sh installs their packages."""
import json
import shutil
import subprocess

import pytest
import scripted_model
from harness import Cluster, protos

PYTHON = protos.ROOT / "build" / "frameworks" / "bin" / "python"
MODULES = protos.ROOT / "build" / "node"
FOLDER = protos.ROOT / "tests" / "clients" / "frameworks"
N_RESULTS = "messages | selectattr('role', 'equalto', 'tool') | list | length"
WANTS_JSON = "'JSON' in (messages | selectattr('role', 'equalto', 'user') | first).content"
DEPARTURE = {"to": "Coldwater", "departure": "07:41"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server whose model calls `departures`, and then answers: in the form that is wanted."""
    folder = scripted_model.write(tmp_path_factory.mktemp("models") / "my-model", [
        (f"'departures' in names and {N_RESULTS} == 0",
         scripted_model.call("departures", {"from": "Greywell", "to": "Coldwater", "day": "Monday"})),
        ("'final_result' in names", scripted_model.call("final_result", DEPARTURE)),
        (WANTS_JSON, json.dumps(DEPARTURE, separators=(",", ":"))),
        ("true", "The first coach leaves at 07:41.")], context=4096)
    with Cluster(folder, stages=2) as cluster:
        yield cluster


@pytest.fixture(params=["my-model", "demo-model"])
def address(request):
    """(base URL, model): the scripted model and the demo model, which decides by itself that it calls the tool."""
    server = request.getfixturevalue("cluster" if request.param == "demo-model" else "server")
    return f"http://{server.http}/v1", request.param


def run(*command):
    process = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=240,
                             env={"PATH": "/usr/bin:/bin", "NO_PROXY": "127.0.0.1"})
    assert process.returncode == 0, process.stdout + process.stderr


@pytest.mark.skipif(not PYTHON.exists(), reason="no packages for frameworks here")
@pytest.mark.parametrize("program", ["openai_package.py", "openai_agents_sdk.py", "langchain_package.py",
                                     "pydantic_ai_package.py"])
def test_python(address, program):
    run(PYTHON, FOLDER / program, *address)


@pytest.mark.skipif(not (shutil.which("node") and (MODULES / "node_modules" / "ai").exists()), reason="no AI SDK here")
def test_ai_sdk(address):
    run(shutil.which("node"), FOLDER / "ai_sdk.mjs", *address, MODULES)
