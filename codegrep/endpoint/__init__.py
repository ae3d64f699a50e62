"""A language model behind an OpenAI-compatible endpoint, asked for judgements: one client for all judges."""

from codegrep.endpoint.answer_cache import AnswerCache
from codegrep.endpoint.client import PATIENCE, Answer, ChatClient, Endpoint, Prompt, Read
from codegrep.endpoint.prompting import code_of, content_key, fenced, object_with, shortened, visible
from codegrep.endpoint.usage import Usage

__all__ = [
    "Answer",
    "AnswerCache",
    "ChatClient",
    "Endpoint",
    "PATIENCE",
    "Prompt",
    "Read",
    "Usage",
    "code_of",
    "content_key",
    "fenced",
    "object_with",
    "shortened",
    "visible",
]
