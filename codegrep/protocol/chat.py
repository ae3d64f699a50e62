"""Turn messages into token ids around the policy's own tokens, for any model with a chat template.

A conversation is never rendered again as a whole: that would rewrite what was sampled. Instead the model's own
template is rendered once with sentinel messages, and the text between the sentinels is kept as scaffolding. A rollout
is then

    prompt_ids(system, user)  sampled tokens  observation_ids(...)  sampled tokens  ...

Scaffolding is encoded with control tokens on. Content is encoded piecewise so that no control token can come out of
it: a string such as `<|im_start|>assistant` in an issue or in repository text becomes plain characters, whatever the
tokenizer does with special tokens. Tool results travel as user messages, which is where Hermes and Qwen3 templates
put them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from codegrep.errors import ModelError
from codegrep.protocol.observation import Segment

_SYSTEM, _USER, _ASSISTANT, _LATER = "Qsystemq1", "Quserq2", "Qassistantq3", "Qlaterq4"
# Templates that print today's date would otherwise make a run depend on the day it is started.
_TEMPLATE_ARGS: dict[str, Any] = {"enable_thinking": False, "date_string": "26 Jul 2024"}


class Tokenizer(Protocol):
    """The part of a Hugging Face tokenizer that is needed here."""

    @property
    def eos_token_id(self) -> Any:
        """Id of the end token, or None."""
        ...

    @property
    def all_special_ids(self) -> Any:
        """Ids of all control tokens."""
        ...

    @property
    def added_tokens_decoder(self) -> Mapping[int, Any]:
        """Added tokens by id; each has `content` and `special`."""
        ...

    def encode(self, text: str, *, add_special_tokens: bool = ...) -> Any:
        """Token ids of a text."""
        ...

    def decode(self, token_ids: Any, **kwargs: Any) -> Any:
        """Text of token ids."""
        ...

    def apply_chat_template(self, conversation: Any, **kwargs: Any) -> Any:
        """Render messages."""
        ...


@dataclass(frozen=True)
class TurnFault:
    """What is odd about the tokens of one turn.

    Attributes:
        kind: "stop_inside", "not_closed", "control_inside" or "retokenised".
        grave: the engine or the template is wrong, and training on the turn would be; else the model is merely odd.
        what: in words.
    """

    kind: str
    grave: bool
    what: str


class ChatFormat:
    """The chat format of one model, derived from its tokenizer.

    Attributes:
        renders_tools: the template describes tools in the Hermes form itself, so `prompt_ids` may be given schemas.
        end_of_turn: id of the token that closes an assistant turn.
        stop_ids: ids that end a generation; holds end_of_turn.

    Raises:
        ModelError: no chat template, or one that rewrites messages so that scaffolding cannot be told from content.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        added = {token.content: bool(token.special) for token in tokenizer.added_tokens_decoder.values()}
        self._any_marker = _alternation(added)
        self._control = _alternation([content for content, special in added.items() if special])
        self._control_ids = frozenset(tokenizer.all_special_ids)
        self._takes_system = self._system_survives()
        self.renders_tools = self._template_renders_tools()
        turns = [
            *self._opening(_SYSTEM, _USER),
            {"role": "assistant", "content": _ASSISTANT},
            {"role": "user", "content": _LATER},
        ]
        rendered = self._render(turns)
        _, after = _split_at(rendered, _ASSISTANT)
        closing, generation = _split_at(after, _LATER)
        close_ids = self._encode(closing, None)
        if not close_ids or close_ids[0] not in self._control_ids:
            raise ModelError(
                "the chat template does not close an assistant turn with a special token",
                "use an instruction-tuned model",
            )
        self.end_of_turn: int = close_ids[0]
        self._to_user: tuple[int, ...] = tuple(close_ids[1:])
        self._to_assistant: tuple[int, ...] = tuple(self._encode(generation, None))
        eos = tokenizer.eos_token_id
        self.stop_ids: frozenset[int] = frozenset({self.end_of_turn} | ({eos} if isinstance(eos, int) else set()))
        self._check_round_trip()

    def prompt_ids(self, system: str, user: str, tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
        """Ids of the whole prompt, up to where the assistant begins to speak.

        Args:
            system: trusted text.
            user: untrusted text (issue).
            tools: function schemas, for templates that render them (`renders_tools`).
        """
        rendered = self._render(self._opening(_SYSTEM, _USER), tools)
        if self._takes_system:
            before, rest = _split_at(rendered, _SYSTEM)
            between, after = _split_at(rest, _USER)
            ids = self._encode(before, None) + self._encode(system, self._control) + self._encode(between, None)
        else:
            before, after = _split_at(rendered, f"{_SYSTEM}\n\n{_USER}")
            ids = self._encode(before, None) + self._encode(system + "\n\n", self._control)
        return ids + self._encode(user, self._any_marker) + self._encode(after, None)

    def observation_ids(self, observation: Sequence[Segment] | str, ended_by_stop: bool) -> list[int]:
        """Return the ids that follow a sampled turn.

        They are its end where it was not sampled, the tool message, and the beginning of the next turn.

        Args:
            observation: what the tools answered; a plain string counts as untrusted.
            ended_by_stop: the last sampled token was `end_of_turn`.
        """
        segments = [Segment(observation, False)] if isinstance(observation, str) else observation
        ids = [] if ended_by_stop else [self.end_of_turn]
        ids += self._to_user
        for segment in segments:
            ids += self._encode(segment.text, self._control if segment.trusted else self._any_marker)
        return [*ids, *self._to_assistant]

    def turn_ids(self, text: str) -> list[int]:
        """Ids of a turn that was written and not sampled (scripted teacher): the text and the end-of-turn token.

        Markers that the model itself would write as single tokens (`<tool_call>` in Qwen3) become those; control
        tokens do not.
        """
        return [*self._encode(text, self._control), self.end_of_turn]

    def turn_fault(self, ids: Sequence[int], ended_by_stop: bool) -> TurnFault | None:
        """Return what is odd about sampled tokens, or None.

        Args:
            ids: of one turn, as sampled.
            ended_by_stop: the engine says that the model ended its turn; then the token that did it must be there, or
                nothing would teach the model to end.
        """
        if any(token in self.stop_ids for token in ids[:-1]):
            return TurnFault("stop_inside", True, "the engine went on after a token that ends a turn")
        closed = bool(ids) and ids[-1] in self.stop_ids
        if ended_by_stop != closed:
            what = "the engine says that the turn ended, but its last token does not end one"
            return TurnFault("not_closed", True, what if ended_by_stop else "the turn ended, and the engine denies it")
        if not self._control_ids.isdisjoint(ids[:-1] if closed else ids):
            return TurnFault("control_inside", False, "the model wrote a control token inside its turn")
        if self._encode(self.decode(ids), self._control) != list(ids[:-1] if closed else ids):
            return TurnFault("retokenised", False, "the turn's text would be encoded into other tokens")
        return None

    def decode(self, ids: Sequence[int]) -> str:
        """Text of sampled ids, without a closing stop token. For parsing and reading only."""
        kept = list(ids[:-1]) if ids and ids[-1] in self.stop_ids else list(ids)
        text: str = self._tokenizer.decode(kept, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

    def decode_all(self, ids: Sequence[int]) -> str:
        """Text of any ids with every control token shown. For people."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

    def _encode(self, text: str, forbidden: re.Pattern[str] | None) -> list[int]:
        """Encode a text so that no match of `forbidden` becomes one token: each is cut after its first character."""
        # Lone surrogates (bytes of odd file names, broken JSON) are no text to a tokenizer.
        text = text if text.isascii() else text.encode("utf-8", "replace").decode()
        pieces, begin = [], 0
        if forbidden is not None:
            match = forbidden.search(text)
            while match is not None:
                pieces.append(text[begin : match.start() + 1])
                begin = match.start() + 1
                match = forbidden.search(text, begin)
        pieces.append(text[begin:])
        ids: list[int] = []
        for piece in pieces:
            ids += self._tokenizer.encode(piece, add_special_tokens=False) if piece else []
        if forbidden is not None and not self._control_ids.isdisjoint(ids):
            raise ModelError("the tokenizer makes control tokens of plain text", "use a tokenizer of the fast kind")
        return ids

    def _opening(self, system: str, user: str) -> list[dict[str, str]]:
        if self._takes_system:
            return [{"role": "system", "content": system}, {"role": "user", "content": user}]
        return [{"role": "user", "content": f"{system}\n\n{user}"}]

    def _render(self, messages: list[dict[str, str]], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        try:
            text = self._tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True, tools=list(tools) or None, **_TEMPLATE_ARGS
            )
        except Exception as failure:  # Jinja errors and ValueErrors of many kinds, each meaning the same to the person
            raise ModelError(
                f"the model's chat template cannot be used: {str(failure)[:200]}", "use an instruction-tuned model"
            ) from failure
        return str(text)

    def _system_survives(self) -> bool:
        self._takes_system = True
        try:
            return _SYSTEM in self._render(self._opening(_SYSTEM, _USER))
        except ModelError:
            self._takes_system = False
            self._render(self._opening(_SYSTEM, _USER))  # raises where there is no template at all
            return False

    def _template_renders_tools(self) -> bool:
        schema = {
            "type": "function",
            "function": {"name": "Qtoolq5", "description": "", "parameters": {"type": "object", "properties": {}}},
        }
        try:
            text = self._render(self._opening(_SYSTEM, _USER), [schema])
        except ModelError:
            return False
        return "Qtoolq5" in text and "<tool_call>" in text

    def _check_round_trip(self) -> None:
        probe = 'a  b\n\n  <|x|> {"k": [1]}\tz'
        if self.decode_all(self._encode(probe, self._any_marker)) != probe:
            raise ModelError("the tokenizer does not give back the text that it was given", "use another model")


def _alternation(texts: Any) -> re.Pattern[str] | None:
    # A marker of one character cannot be cut in two; none of the usual models has one that is a control token.
    ordered = sorted((text for text in texts if len(text) > 1), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, ordered))) if ordered else None


def _split_at(text: str, sentinel: str) -> tuple[str, str]:
    before, found, after = text.partition(sentinel)
    if not found or sentinel in after:
        raise ModelError("the chat template drops or repeats messages", "use a model with a plain multi-turn template")
    return before, after
