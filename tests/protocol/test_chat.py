from __future__ import annotations

from itertools import pairwise
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
def test_a_continuation_keeps_every_sampled_token(name: str) -> None:
    """Three turns as a rollout puts them together: what was sampled stands there unchanged, thoughts included, each
    turn ends with a token that is learned, and the next prompt begins with everything before it."""
    chat = ChatFormat(load(name))
    sampled = [
        chat.turn_ids("<think>\nwhere?\n</think>\n\n<tool_call>\n{}\n</tool_call>"),
        [*chat.turn_ids("a  b\n\n")[:-1], *chat.turn_ids("c")],  # tokens that their text would not be encoded into
        chat.turn_ids("<answer>{}</answer>"),
    ]
    context, mask, contexts = chat.prompt_ids("S", "U"), [0] * len(chat.prompt_ids("S", "U")), []
    for turn in sampled:
        contexts.append(list(context))
        context, mask = context + turn, mask + [1] * len(turn)
        observation = chat.observation_ids("heard", turn[-1] in chat.stop_ids)
        context, mask = context + observation, mask + [0] * len(observation)
    for before, after in pairwise(contexts):
        assert after[: len(before)] == before
    supervised = [token for token, learned in zip(context, mask, strict=True) if learned]
    assert supervised == [token for turn in sampled for token in turn]
    assert supervised.count(chat.end_of_turn) == len(sampled)
    shown = chat.decode_all(context)
    assert shown.count("where?") == 1 and shown.count("heard") == 3  # no template has dropped the thought


def test_qwen3_thinks_nothing_before_each_turn_and_keeps_it() -> None:
    chat = ChatFormat(load("qwen3"))
    assert chat.decode_all(chat.prompt_ids("S", "U")).endswith(EMPTY_THOUGHT)
    assert chat.decode_all(chat.observation_ids("x", True)).endswith(EMPTY_THOUGHT)


def test_odd_tokens_of_a_turn_are_named() -> None:
    chat = ChatFormat(load("qwen3"))
    fine = chat.turn_ids("find it <tool_call>{}</tool_call>")
    assert chat.turn_fault(fine, True) is None
    assert chat.turn_fault(fine[:-1], False) is None  # ran out of tokens
    cases = [
        ([*fine, *fine], True, "stop_inside", True),
        (fine[:-1], True, "not_closed", True),
        (fine, False, "not_closed", True),
        ([], True, "not_closed", True),
        ([*chat.prompt_ids("S", "U")[:1], *fine], True, "control_inside", False),
        ([*chat.turn_ids("f")[:-1], *chat.turn_ids("ind")], True, "retokenised", False),
    ]
    for ids, ended, kind, grave in cases:
        fault = chat.turn_fault(ids, ended)
        assert fault is not None and (fault.kind, fault.grave) == (kind, grave), kind


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
