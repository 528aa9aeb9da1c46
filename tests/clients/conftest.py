import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "checkpoints"))
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "cluster"))

import chromium
import httpx
import openai
import pytest
from harness import DEMO_MODEL, Cluster
from workload import GOLDEN

# Renders tools and tool calls so that a test can see them; the spelling is that of Hermes and Qwen.
TEMPLATE = """{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.role }}: {{ m.content or '' }}
{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.name }} {{ c.function.arguments.city }} {{ c.id }}</tool_call>
{% endfor %}{% if m.tool_call_id %}{{ m.tool_call_id }}{% endif %}{% endfor %}assistant: {% if think %}<think></think>{% endif %}"""


@pytest.fixture(scope="session")
def cluster():
    """The demo model on two stages, shared by tests that only send requests."""
    with Cluster(DEMO_MODEL, stages=2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def client(cluster):
    """The official openai package, connected to the demo model."""
    with openai.OpenAI(base_url=f"http://{cluster.http}/v1", api_key="none", max_retries=0,
                       http_client=httpx.Client(trust_env=False)) as client:
        yield client


@pytest.fixture(scope="session")
def chatty_cluster():
    """A cluster with one running request; a waiting stream sends a keep-alive after a millisecond."""
    with Cluster(DEMO_MODEL, flags=["--sse-keep-alive-interval", "0.001", "--max-sequences", "1"]) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def tool_cluster(tmp_path_factory):
    """A model with random weights whose template supports tools."""
    template = tmp_path_factory.mktemp("template") / "template.jinja"
    template.write_text(TEMPLATE)
    with Cluster(GOLDEN / "qwen2", stages=2, flags=["--dtype", "float32", "--chat-template", template]) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def browser():
    if not chromium.is_here():
        pytest.skip("no Chromium on this system")
    browser = chromium.Browser()
    yield browser
    browser.close()


@pytest.fixture
def page(browser, cluster):
    """The page of the demo model, with one new chat."""
    browser.complaints()
    browser.open(cluster.http)
    yield browser
    assert browser.complaints() == []
    browser.leave()


@pytest.fixture(scope="session")
def timetable():
    """The world of the demo model."""
    sys.path.insert(0, str(DEMO_MODEL.parent / "demo-model-training"))
    import timetable

    return timetable
