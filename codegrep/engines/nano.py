"""An untrained model for tests: two Llama layers, about 100,000 random parameters, 512 tokens, ChatML.

It has a real tokenizer and architecture, so it takes every path that a real model takes. Its bytes are reproducible.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

NAME = "nano"
VOCABULARY = 512
SEED = 20_240_601
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")  # ids 0, 1, 2: padding, start of turn, end of turn

CHAT_TEMPLATE = """\
{%- for message in messages -%}
{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\\n' -}}
{%- endif -%}
"""


def make(target: Path, _models: Path) -> dict[str, str]:
    """Write the model into the empty folder `target`.

    Returns:
        Its origin, for the folder's marker.
    """
    import torch
    import transformers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    padding, start, end = SPECIAL_TOKENS
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=_train_tokenizer(),
        eos_token=end,
        pad_token=padding,
        additional_special_tokens=[start],
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(target)

    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=SPECIAL_TOKENS.index(end),
        pad_token_id=SPECIAL_TOKENS.index(padding),
    )
    with torch.random.fork_rng(devices=[]):  # keeps the caller's random state
        torch.manual_seed(SEED)
        model = LlamaForCausalLM(config)
    model.save_pretrained(target)
    return {"source": f"random weights, seed {SEED}", "transformers": transformers.__version__}


def _train_tokenizer() -> Tokenizer:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),  # no byte is unknown
        show_progress=False,
    )
    tokenizer.train_from_iterator(_text(), trainer)
    return tokenizer


def _text() -> list[str]:
    """Return lines like those that the agent reads and writes, from a few word lists."""
    verbs = ("read", "write", "parse", "render", "load", "store", "check", "compare", "split", "merge")
    nouns = ("config", "table", "request", "session", "token", "path", "matrix", "index", "figure", "response")
    folders = ("src", "lib", "core", "tests", "io", "api")
    lines = []
    for i, verb in enumerate(verbs):
        for j, noun in enumerate(nouns):
            folder = folders[(i + j) % len(folders)]
            lines += [
                f"def {verb}_{noun}(self, {noun}, default=None):",
                f"    return self.{noun}s[{i * 10 + j}]",
                f"{folder}/{noun}s/{verb}.py:{i * 31 + j}: class {verb.title()}{noun.title()}(object):",
                f'<tool_call>{{"name": "grep", "arguments": {{"pattern": "{verb}_{noun}"}}}}</tool_call>',
                f'<answer>{{"files": ["{folder}/{noun}s/{verb}.py"]}}</answer>',
                f"The {noun} is wrong when we {verb} it twice.",
            ]
    return lines
