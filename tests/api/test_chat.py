"""TextCodec over HTTP, with a tokenizer: prompts in, text out, stop strings, chat templates."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.postprocess.vocab import real
from tests.serve.running import Running
from tokenpipe.api.chat import ChatTemplate
from tokenpipe.api.problems import Problem
from tokenpipe.api.request_models import ChatMessage
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
    assert "".join(encoder.token(token) for token in ids) == "hello world"


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
