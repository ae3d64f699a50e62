"""A client for language models that judge, behind an OpenAI-compatible endpoint."""

from codegrep.judges.endpoint.answer_cache import AnswerCache
from codegrep.judges.endpoint.client import PATIENCE, ChatClient, Endpoint, Prompt, Read, Reply, Usage
from codegrep.judges.endpoint.prompting import code_of, fenced, object_with, shortened, visible

__all__ = [
    "PATIENCE",
    "AnswerCache",
    "ChatClient",
    "Endpoint",
    "Prompt",
    "Read",
    "Reply",
    "Usage",
    "code_of",
    "fenced",
    "object_with",
    "shortened",
    "visible",
]
