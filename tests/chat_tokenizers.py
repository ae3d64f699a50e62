"""Small tokenizers made on the spot: byte-level BPE, so any text survives, with the chat templates that TRL ships."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PLAIN_MARKERS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")


def shipped_template(name: str) -> str:
    """Text of a template in the installed TRL, e.g. "qwen3"."""
    import trl

    return (Path(trl.__file__).parent / "chat_templates" / f"{name}.jinja").read_text()


@lru_cache(maxsize=16)
def tiny_tokenizer(template: str = CHATML, end_of_turn: str = "<|im_end|>") -> PreTrainedTokenizerFast:
    """A tokenizer whose special tokens are those of the template; `PLAIN_MARKERS` are added tokens, but not special."""
    special = sorted({*re.findall(r"<\|[a-z0-9_]+\|>|<[a-z]+_of_[a-z]+>", template), end_of_turn, "<|endoftext|>"})
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=special,
        show_progress=False,
    )
    tokenizer.train_from_iterator(
        ["def answer files the issue grep pattern path name arguments class return import"] * 4, trainer
    )
    tokenizer.add_tokens([marker for marker in PLAIN_MARKERS if marker in template])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|endoftext|>",
        eos_token=end_of_turn,
        pad_token="<|endoftext|>",
        additional_special_tokens=special,
    )
    fast.chat_template = template
    return fast
