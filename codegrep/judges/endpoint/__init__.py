"""A language model behind an OpenAI-compatible endpoint, asked for judgements: one client for all judges."""

from codegrep.judges.endpoint.answer_cache import AnswerCache
from codegrep.judges.endpoint.client import PATIENCE, ChatClient, Endpoint, Prompt, Read, Reply
from codegrep.judges.endpoint.prompting import code_of, content_key, fenced, object_with, shortened, visible
from codegrep.judges.endpoint.usage import Usage

__all__ = [
    "Reply",
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
