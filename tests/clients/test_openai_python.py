"""The official openai package for Python, as its users use it."""
import asyncio

import httpx
import openai
import pytest
from harness import DEMO_MODEL, Cluster
from wire import metric, wait_for

MESSAGES = [{"role": "user", "content": "When does the first coach leave Greywell on Sunday?"}]
GREEDY = {"model": "demo-model", "temperature": 0}


@pytest.fixture(scope="module")
def answer(client):
    return client.chat.completions.create(messages=MESSAGES, **GREEDY)


def test_chat(client, answer):
    choice = answer.choices[0]
    assert choice.message.role == "assistant" and choice.message.content
    assert choice.finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.prompt_tokens_details.cached_tokens == 0
    assert answer._request_id


def test_chat_stream(client, answer):
    chunks = list(client.chat.completions.create(messages=MESSAGES, stream=True, stream_options={"include_usage": True}, **GREEDY))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks[:-1]) == answer.choices[0].message.content
    assert [c.choices[0].finish_reason for c in chunks[:-1]][-1] == "stop"
    assert chunks[-1].choices == [] and chunks[-1].usage == answer.usage
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert len({chunk.id for chunk in chunks}) == 1


def test_chat_stream_helper(client, answer):
    with client.chat.completions.stream(messages=MESSAGES, **GREEDY) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion()
    assert "content.delta" in kinds and kinds[-1] == "content.done"
    assert final.choices[0].message.content == answer.choices[0].message.content


def test_chat_logprobs(client):
    answer = client.chat.completions.create(messages=MESSAGES, logprobs=True, top_logprobs=4, max_completion_tokens=10, **GREEDY)
    content = answer.choices[0].logprobs.content
    assert len(content) == answer.usage.completion_tokens
    text = b"".join(bytes(token.bytes) for token in content).decode(errors="replace")
    assert answer.choices[0].message.content in text
    for token in content:
        assert len(token.top_logprobs) == 4
        assert token.logprob == token.top_logprobs[0].logprob and token.token == token.top_logprobs[0].token
    chunks = client.chat.completions.create(messages=MESSAGES, logprobs=True, top_logprobs=4, max_completion_tokens=10,
                                            stream=True, **GREEDY)
    streamed = [token for c in chunks if c.choices[0].logprobs for token in c.choices[0].logprobs.content]
    assert streamed == content


def test_choices_and_seed(client):
    def ask():
        answer = client.chat.completions.create(model="demo-model", messages=MESSAGES, n=3, seed=5, temperature=5, max_tokens=12)
        return [choice.message.content for choice in answer.choices]

    first = ask()
    assert len(set(first)) > 1
    assert ask() == first
    pieces = ["", "", ""]
    for chunk in client.chat.completions.create(model="demo-model", messages=MESSAGES, n=3, seed=5, temperature=5,
                                                max_tokens=12, stream=True):
        pieces[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert pieces == first


def test_every_parameter(client):
    answer = client.chat.completions.create(
        model="demo-model", messages=[{"role": "developer", "content": "Be brief."}, *MESSAGES], max_completion_tokens=6,
        frequency_penalty=0.5, presence_penalty=0.5, logit_bias={"42": -100}, stop=["\n\n"], temperature=0.7, top_p=0.9, user="u",
        store=False, metadata={"a": "b"}, service_tier="auto", response_format={"type": "text"}, parallel_tool_calls=False,
        extra_body={"top_k": 20, "min_p": 0.05, "repetition_penalty": 1.2, "ignore_eos": True, "min_tokens": 3,
                    "stop_token_ids": [7], "chat_template_kwargs": {"enable_thinking": False}, "priority": 1,
                    "skip_special_tokens": True, "add_generation_prompt": True, "something_new": [1]})
    assert answer.usage.completion_tokens >= 3
    content = [{"type": "text", "text": MESSAGES[0]["content"]}]
    parts = client.chat.completions.create(messages=[{"role": "user", "content": content}], **GREEDY)
    assert parts.choices[0].message.content == client.chat.completions.create(messages=MESSAGES, **GREEDY).choices[0].message.content


def test_completions(client):
    whole = client.completions.create(prompt="The coach leaves", max_tokens=8, logprobs=2, echo=True, **GREEDY)
    assert whole.choices[0].text.startswith("The coach leaves")
    assert len(whole.choices[0].logprobs.tokens) == whole.usage.total_tokens
    chunks = list(client.completions.create(prompt=["The coach leaves"], max_tokens=8, stream=True, echo=True,
                                            stream_options={"include_usage": True}, **GREEDY))
    assert "".join(c.choices[0].text for c in chunks[:-1]) == whole.choices[0].text
    assert chunks[-1].usage == whole.usage


def test_models(client):
    assert [model.id for model in client.models.list()] == ["demo-model"]
    assert client.models.retrieve("demo-model").owned_by == "stagecoach"


def test_errors(client):
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(messages=MESSAGES, top_p=7, **GREEDY)
    assert error.value.param == "top_p" and error.value.type == "invalid_request_error"
    with pytest.raises(openai.NotFoundError) as error:
        client.chat.completions.create(messages=MESSAGES, model="gpt-4")
    assert error.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as error:
        client.completions.create(prompt="word " * 5000, **GREEDY)
    assert error.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError, match="generates text"):
        client.embeddings.create(model="demo-model", input="x")


def test_closing_a_stream_early(client, cluster):
    def aborts():
        return metric(cluster.http, "vllm:request_success_total", finished_reason="abort")

    before = aborts()
    stream = client.completions.create(prompt=[5] * 8, max_tokens=1800, stream=True, extra_body={"ignore_eos": True}, **GREEDY)
    next(iter(stream))
    stream.close()
    wait_for(lambda: aborts() == before + 1)


def test_many_requests_at_once(cluster):
    async def run():
        http = httpx.AsyncClient(trust_env=False, limits=httpx.Limits(max_connections=64))
        async with openai.AsyncOpenAI(base_url=f"http://{cluster.http}/v1", api_key="none", http_client=http) as client:
            async def one(i):
                text = ""
                async for chunk in await client.completions.create(prompt=f"Line {i}", max_tokens=12, stream=True, **GREEDY):
                    text += chunk.choices[0].text
                whole = await client.completions.create(prompt=f"Line {i}", max_tokens=12, **GREEDY)
                return text == whole.choices[0].text

            return await asyncio.gather(*(one(i) for i in range(48)))

    assert all(asyncio.run(run()))


def test_api_key(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sk-good\nsk-slow requests_per_minute=1\n")
    with Cluster(DEMO_MODEL, flags=["--api-keys", keys]) as cluster:
        def ask(key):
            with openai.OpenAI(base_url=f"http://{cluster.http}/v1", api_key=key, max_retries=0,
                               http_client=httpx.Client(trust_env=False)) as client:
                return client.completions.create(prompt="x", max_tokens=1, **GREEDY)

        assert ask("sk-good").choices
        with pytest.raises(openai.AuthenticationError):
            ask("sk-bad")
        ask("sk-slow")
        with pytest.raises(openai.RateLimitError):
            ask("sk-slow")
