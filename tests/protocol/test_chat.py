from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from codegrep.errors import ModelError
from codegrep.protocol.chat import ChatFormat, Tokenizer
from codegrep.protocol.observation import Segment
from codegrep.protocol.schemas import schemas_of
from tests.chat_tokenizers import CHATML, shipped_template, tiny_tokenizer

SMOLLM2 = Path(__file__).parents[2] / "models" / "smollm2-135m-instruct"
EMPTY_THOUGHT = "<think>\n\n</think>\n\n"
FAMILIES = {
    "qwen2_5": "<|im_end|>",
    "qwen3": "<|im_end|>",
    "qwen3_instruct_2507": "<|im_end|>",
    "llama3": "<|eot_id|>",
    "llama3_1": "<|eot_id|>",
    "llama3_2": "<|eot_id|>",
    "phi3": "<|end|>",
    "gemma": "<end_of_turn>",  # has no system role
    "gemma3": "<end_of_turn>",
}


def tokenizers() -> list[str]:
    return ["chatml", "smollm2", *FAMILIES]


def load(name: str) -> Tokenizer:
    if name == "smollm2":
        if not (SMOLLM2 / "tokenizer.json").exists():
            pytest.skip("models/smollm2-135m-instruct is not there (make demo provides it)")
        return AutoTokenizer.from_pretrained(SMOLLM2)
    if name == "chatml":
        return tiny_tokenizer()
    return tiny_tokenizer(shipped_template(name), FAMILIES[name])


@pytest.mark.parametrize("name", tokenizers())
def test_pieces_spell_the_templates_own_conversation(name: str) -> None:
    tokenizer = load(name)
    chat = ChatFormat(tokenizer)
    said = ["I search.\n<tool_call>\n{}\n</tool_call>", "<answer>{}</answer>"]
    heard = "<tool_response>\n[1] grep: a.py:1: x\n</tool_response>"
    ids = [
        *chat.prompt_ids("Be brief.", "An issue."),
        *chat.turn_ids(said[0]),
        *chat.observation_ids(heard, ended_by_stop=True),
        *chat.turn_ids(said[1]),
    ]
    opening = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "An issue."}]
    if name == "gemma":
        opening = [{"role": "user", "content": "Be brief.\n\nAn issue."}]
    turns = [
        {"role": "assistant", "content": said[0]},
        {"role": "user", "content": heard},
        {"role": "assistant", "content": said[1]},
    ]
    rendered = tokenizer.apply_chat_template(
        [*opening, *turns], tokenize=False, enable_thinking=False, date_string="26 Jul 2024"
    )
    # Qwen3's template drops the empty thought of earlier turns when it renders anew. We keep what the model has seen.
    assert rendered.replace(EMPTY_THOUGHT, "").startswith(chat.decode_all(ids).replace(EMPTY_THOUGHT, ""))


@pytest.mark.parametrize("name", tokenizers())
def test_content_never_becomes_control_tokens(name: str) -> None:
    tokenizer = load(name)
    chat = ChatFormat(tokenizer)
    added = tokenizer.added_tokens_decoder
    attack = "".join(f"a{token.content}assistant\n{token.content}{token.content}" for token in added.values())
    plain = chat.observation_ids("x", True)
    attacked = chat.observation_ids(attack, True)
    assert sum(i in added for i in attacked) == sum(i in added for i in plain)
    assert attack in chat.decode_all(attacked)
    prompt, attacked_prompt = chat.prompt_ids("S", "U"), chat.prompt_ids("S", attack)
    assert sum(i in added for i in attacked_prompt) == sum(i in added for i in prompt)
    assert attack in chat.decode_all(attacked_prompt)
    scripted = chat.turn_ids(attack)
    assert sum(i in chat.stop_ids for i in scripted) == 1 and scripted[-1] == chat.end_of_turn


def test_trusted_markers_are_the_models_tokens_and_untrusted_ones_are_not() -> None:
    tokenizer = load("qwen3")
    chat = ChatFormat(tokenizer)
    (marker,) = [i for i, token in tokenizer.added_tokens_decoder.items() if token.content == "</tool_response>"]
    assert chat.observation_ids([Segment("</tool_response>", True)], True).count(marker) == 1
    assert chat.observation_ids([Segment("</tool_response>", False)], True).count(marker) == 0


def test_turn_is_closed_only_where_the_model_did_not() -> None:
    chat = ChatFormat(tiny_tokenizer())
    assert chat.observation_ids("x", False) == [chat.end_of_turn, *chat.observation_ids("x", True)]
    assert (
        chat.decode_all(chat.observation_ids("x", False))
        == "<|im_end|>\n<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n"
    )


def test_decode_leaves_only_the_closing_stop_token_out() -> None:
    chat = ChatFormat(tiny_tokenizer())
    ids = chat.turn_ids("a b")
    assert chat.decode(ids) == "a b"
    assert chat.decode([*ids, *ids]) == "a b<|im_end|>a b"
    assert chat.decode([]) == ""


@pytest.mark.parametrize("name", ["qwen2_5", "qwen3"])
def test_native_tools(name: str) -> None:
    chat = ChatFormat(load(name))
    assert chat.renders_tools
    schemas = [schema.function for schema in schemas_of(["grep", "read"])]
    text = chat.decode_all(chat.prompt_ids("S", "U", schemas))
    assert '"name": "grep"' in text and text.index("S") < text.index("<tools>")


def test_templates_without_tools_say_so() -> None:
    assert not ChatFormat(tiny_tokenizer()).renders_tools
    assert not ChatFormat(load("llama3_1")).renders_tools  # renders tools, but not in the Hermes form


def test_templates_that_cannot_be_used_are_refused() -> None:
    with pytest.raises(ModelError, match="chat template cannot be used"):
        ChatFormat(tiny_tokenizer(template="{{ raise_exception('no') }}"))
    with pytest.raises(ModelError, match="drops or repeats"):
        ChatFormat(tiny_tokenizer(template="{{ messages[-1]['content'] }}<|im_end|>"))
    with pytest.raises(ModelError, match="does not close"):
        ChatFormat(tiny_tokenizer(template=CHATML.replace("<|im_end|>", "\n")))


def test_base_model_without_template_is_refused() -> None:
    tokenizer = tiny_tokenizer(template="{# none #}" + CHATML)
    tokenizer.chat_template = None
    with pytest.raises(ModelError):
        ChatFormat(tokenizer)


CHAT = ChatFormat(tiny_tokenizer())
hostile = st.lists(
    st.sampled_from(["<|im_start|>", "<|im_end|>", "<", "|", "im_end", "|>", "<|", "a", "\n", "é", "\ud800"])
    | st.text(max_size=3),
    max_size=12,
)


@settings(max_examples=200)
@given(hostile.map("".join))
def test_any_text_stays_text(text: str) -> None:
    clean = text.encode("utf-8", "replace").decode()
    frame = CHAT.decode_all(CHAT.observation_ids("", True))
    ids = CHAT.observation_ids(text, True)
    assert CHAT.decode_all(ids) == frame.replace("user\n", "user\n" + clean, 1)
    assert ids.count(CHAT.end_of_turn) == 1
