"""TextCodec over HTTP, with a tokenizer: prompts in, text out, stop strings, chat templates."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.postprocess.vocab import real
from tests.serve.running import Running
from tokenpipe.api.chat import ChatTemplate
from tokenpipe.api.problems import Problem
from tokenpipe.api.request_models import (
    ChatCompletionRequest,
    ChatMessage,
    ChatOptions,
    CompletionRequest,
)
from tokenpipe.errors import ConfigError
from tokenpipe.postprocess import load_encoder

VOCABULARY = real("gpt2_style")
TEMPLATE = (
    "{% for m in messages %}\n<{{ m.role }}>{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{{ bos_token }}{% endif %}"
)
PARROT = """
import numpy as np
from tokenpipe.worker import StepRows
class Parrot:
    "Says its prompt, then the first token of it for ever."
    def __init__(self, place):
        self.running = {}
    def admit(self, binding):
        ids = list(binding.prompt_token_ids)
        self.running[binding.handle] = (ids * 1000)[binding.output_tokens:]
    def step(self):
        handles = [h for h, left in self.running.items() if left]
        tokens = [self.running[h].pop(0) for h in handles]
        return StepRows(np.array(handles, np.int64), np.array(tokens, np.int32))
    def free(self, handle):
        del self.running[handle]
"""


def message(role: str, content: Any) -> ChatMessage:
    return ChatMessage.model_validate({"role": role, "content": content})


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    VOCABULARY.tokenizer.save(str(path))
    config = {"chat_template": TEMPLATE, "bos_token": {"content": "!"}, "eos_token": None}
    path.with_name("tokenizer_config.json").write_text(json.dumps(config))
    return path


@pytest.fixture(scope="module")
def parrot(tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    directory = tmp_path_factory.mktemp("parrot")
    (directory / "parrot.py").write_text(PARROT)
    with tempfile.TemporaryDirectory(prefix="tp-") as base:
        arguments = ("--engine", "parrot:Parrot")
        with Running(directory, Path(base), *arguments, tokenizer=str(tokenizer)) as running:
            yield running


def test_text_comes_back_streamed_and_whole(parrot: Running) -> None:
    prompt = "one two, drei €uro 漢字 🙂"
    count = len(load_encoder_of(parrot).encode([prompt])[0])
    asked: dict[str, Any] = {"model": "tokenpipe", "prompt": prompt, "max_tokens": count}
    with parrot.client() as client:
        whole = client.completions.create(**asked)
        chunks = list(client.completions.create(**asked, stream=True))
    assert whole.choices[0].text == prompt
    assert "".join(chunk.choices[0].text for chunk in chunks) == prompt
    assert whole.usage is not None and whole.usage.prompt_tokens == count


def load_encoder_of(server: Running) -> Any:
    topology = json.loads((server.out.parent / "topology.yaml").read_text())
    return load_encoder(topology["tokenizer"])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("include", "text"), [(False, "count to "), (True, "count to th")])
def test_stop_string_ends_it_and_frees_the_slot(
    parrot: Running, stream: bool, include: bool, text: str
) -> None:
    asked: dict[str, Any] = {"model": "tokenpipe", "prompt": "count to three and on"}
    extra = {"include_stop_str_in_output": include}
    with parrot.client() as client:
        answer: Any = client.completions.create(
            **asked, stop=["nothing", "th"], max_tokens=10_000, stream=stream, extra_body=extra
        )
        chunks = list(answer) if stream else [answer]
    assert "".join(chunk.choices[0].text for chunk in chunks) == text
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert chunks[-1].choices[0].stop_reason == "th"


def test_chat_goes_through_the_models_template(parrot: Running) -> None:
    messages: Any = [{"role": "user", "content": "hi there"}]
    expected = "<user>hi there\n<assistant>!"
    count = len(load_encoder_of(parrot).encode([expected], special_tokens=False)[0])
    with parrot.client() as client:
        answer = client.chat.completions.create(
            model="tokenpipe", messages=messages, max_tokens=count
        )
    assert answer.choices[0].message.content == expected


def test_logprob_names_are_words(tokenizer: Path) -> None:
    encoder = load_encoder(tokenizer)
    (ids,) = encoder.encode(["hello world"])
    assert "".join(encoder.token(token)[0] for token in ids) == "hello world"


def test_empty_prompt_is_refused(parrot: Running) -> None:
    answer = parrot.post("/v1/completions", {"prompt": ""})
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "prompt"


def test_template_is_found_beside_the_tokenizer_or_where_told(tmp_path: Path) -> None:
    tokenizer = tmp_path / "tokenizer.json"
    assert ChatTemplate.beside(tokenizer) is None
    said = [message("user", [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])]
    config = {"chat_template": [{"name": "default", "template": "{{ messages[0].content }}!"}]}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    found = ChatTemplate.beside(tokenizer)
    assert found is not None and found.render(said) == "ab!"
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].role }}?")
    found = ChatTemplate.beside(tokenizer)
    assert found is not None and found.render(said) == "user?"
    (tmp_path / "other.jinja").write_text("{{ messages | tojson }}")
    read = ChatTemplate.read(tmp_path / "other.jinja").render(said)
    assert json.loads(read) == [{"role": "user", "content": "ab"}]


def test_template_that_refuses_or_breaks_out_is_a_400() -> None:
    for source in (
        "{{ raise_exception('roles must alternate') }}",
        "{{ messages.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
    ):
        with pytest.raises(Problem) as caught:
            ChatTemplate(source, {}, "t").render([message("user", "x")])
        assert caught.value.status == 400 and caught.value.param == "messages"
    with pytest.raises(ConfigError, match="chat template t:"):
        ChatTemplate("{% for %}", {}, "t")
    with pytest.raises(ConfigError, match="cannot be read"):
        ChatTemplate.read(Path("/nothing/there"))


@pytest.mark.case("F36")
@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("{{ messages[0].content + 1 }}", "TypeError"),
        ("{{ 1 // (messages | length - 1) }}", "ZeroDivisionError"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
        ("{{ messages[0].tool_calls[0].x }}", ""),
        ("{{ strftime_now(messages) }}", "TypeError"),
        ("{{ range(1000000000) | list }}", ""),
    ],
)
def test_whatever_a_template_raises_is_a_400(source: str, kind: str) -> None:
    with pytest.raises(Problem) as caught:
        ChatTemplate(source, {}, "t").render([message("user", "x")])
    assert (caught.value.status, caught.value.param) == (400, "messages")
    assert caught.value.message.startswith(f"messages: the chat template fails: {kind}")


@pytest.mark.case("F29")
def test_a_caller_may_say_how_the_prompt_ends() -> None:
    template = ChatTemplate(TEMPLATE + "{% if deep %}!{{ deep }}{% endif %}", {}, "t")
    said = [message("user", "hi"), message("assistant", "well, ")]
    begin = "<user>hi\n<assistant>well, \n"
    assert template.render(said) == begin + "<assistant>"
    assert template.render(said, ChatOptions(add_generation_prompt=False)) == begin
    assert template.render(said, ChatOptions(template_kwargs={"deep": 5})).endswith("!5")
    goes_on = ChatOptions(add_generation_prompt=False, continue_final_message=True)
    assert template.render(said, goes_on) == begin[:-1]
    stripping = ChatTemplate("{% for m in messages %}[{{ m.content | trim }}]{% endfor %}", {}, "t")
    assert stripping.render(said, goes_on) == "[hi][well,"
    for other, end in ((template, ""), (ChatTemplate("fixed", {}, "t"), "y")):
        with pytest.raises(Problem) as caught:
            other.render([message("assistant", end)], goes_on)
        assert (caught.value.status, caught.value.param) == (400, "continue_final_message")


def test_options_that_contradict_one_another_are_refused() -> None:
    def options(**more: Any) -> ChatOptions:
        body = {"messages": [{"role": "user", "content": "x"}], **more}
        return ChatCompletionRequest.model_validate(body).options

    assert options() == ChatOptions(template_kwargs={})
    goes_on = ChatOptions(add_generation_prompt=False, continue_final_message=True)
    assert options(continue_final_message=True) == goes_on._replace(template_kwargs={})
    for more, param in (
        ({"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
    ):
        with pytest.raises(Problem) as caught:
            options(**more)
        assert (caught.value.status, caught.value.param) == (400, param)


@pytest.mark.case("F36")
def test_messages_that_a_template_cannot_render_over_http(parrot: Running) -> None:
    half = {"role": "user", "content": "\ud83d"}
    for messages in (
        [half],
        [{"role": "assistant", "tool_calls": [{"function": {"arguments": "{"}}]}],
    ):
        raw = json.dumps({"messages": messages}).encode()
        answer = httpx.post(f"{parrot.url}/v1/chat/completions", content=raw)
        assert answer.status_code == 400 and answer.json()["error"]["param"] == "messages"


@pytest.mark.case("F36")
@pytest.mark.parametrize("path", ["completions", "chat/completions"])
def test_null_in_each_optional_field_is_no_value(parrot: Running, path: str) -> None:
    model: Any = ChatCompletionRequest if path.startswith("chat") else CompletionRequest
    optional = [name for name, info in model.model_fields.items() if not info.is_required()]
    body: dict[str, Any] = dict.fromkeys(optional)
    body |= (
        {"messages": [{"role": "user", "content": "x"}]}
        if model is ChatCompletionRequest
        else {"prompt": "x"}
    )
    body["max_tokens"] = 2
    assert parrot.post(f"/v1/{path}", body).status_code == 200
    nulls = {"include_usage": None, "continuous_usage_stats": None}
    streamed = parrot.post(f"/v1/{path}", {**body, "stream": True, "stream_options": nulls})
    assert streamed.status_code == 200 and streamed.text.endswith("data: [DONE]\n\n")
