"""litellm, as a proxy or an agent framework uses it for a server with OpenAI's API."""
import os

import pytest

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # nothing is fetched
import litellm  # noqa: E402

MESSAGES = [{"role": "user", "content": "When does the first coach leave Greywell on Sunday?"}]


@pytest.fixture
def options(cluster, monkeypatch):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    return {"model": "hosted_vllm/demo-model", "api_base": f"http://{cluster.http}/v1", "api_key": "none", "num_retries": 0,
            "temperature": 0, "messages": MESSAGES}


def test_chat_and_stream(options):
    whole = litellm.completion(**options, top_k=5, max_tokens=30)
    text = whole.choices[0].message.content
    assert text and whole.usage.completion_tokens > 0
    chunks = list(litellm.completion(**options, top_k=5, max_tokens=30, stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == text
    rebuilt = litellm.stream_chunk_builder(chunks, messages=MESSAGES)
    assert rebuilt.usage.completion_tokens == whole.usage.completion_tokens


def test_errors_are_the_right_classes(options):
    with pytest.raises(litellm.ContextWindowExceededError):
        litellm.completion(**{**options, "messages": [{"role": "user", "content": "word " * 5000}]})
    with pytest.raises(litellm.NotFoundError):
        litellm.completion(**{**options, "model": "hosted_vllm/gpt-4"})
    with pytest.raises(litellm.BadRequestError):
        litellm.completion(**options, top_p=7)
