"""Settings as MLflow parameters: flat, cut, without secrets."""

from __future__ import annotations

import json
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegrep.tracking import parameters
from codegrep.tracking.names import is_allowed


@pytest.mark.parametrize(
    "key",
    ["token", "HF_TOKEN", "hf-token", "judge.api_key", "apiKey", "db.password", "clientSecret", "aws_secret_access_key",
     "s3.access-key", "credentials", "auth_token", "private_key", "a/b/passwd"],
)  # fmt: skip
def test_secrets_are_known_by_their_key(key):
    assert parameters.is_secret(key)
    assert parameters.MASK in parameters.flatten({key: "value"}).values()


@pytest.mark.parametrize(
    "key",
    ["max_turn_tokens", "tokens_per_step", "tokenizer", "max_completion_tokens", "key", "author", "token.max", "top_k",
     "monkey", "secretary"],
)  # fmt: skip
def test_ordinary_settings_are_not_taken_for_secrets(key):
    assert not parameters.is_secret(key)


def test_flatten():
    settings = {
        "seed": 0,
        "train": {"grpo": {"kl": 0.02, "enabled": True, "scheduler": "cosine"}, "empty": {}},
        "stages": ["prepare", "train"],
        "address": None,
        "folder": PurePosixPath("outputs/a"),
        "sources": [{"kind": "x", "api_key": "abc"}],
        "uri": "postgresql://me:pw@host/db",
    }
    assert parameters.flatten(settings) == {
        "seed": "0",
        "train.grpo.kl": "0.02",
        "train.grpo.enabled": "true",
        "train.grpo.scheduler": "cosine",
        "train.empty": "{}",
        "stages": '["prepare", "train"]',
        "address": "null",
        "folder": "outputs/a",
        "sources": '[{"kind": "x", "api_key": "***"}]',
        "uri": "postgresql://***@host/db",
    }


def test_a_secret_that_is_a_whole_group_is_masked_leaf_by_leaf():
    assert "hunter2" not in json.dumps(parameters.masked({"credentials": {"user": "me", "password": "hunter2"}}))
    assert "hunter2" not in json.dumps(parameters.masked({"tokens": {"token": ["hunter2"]}}))


def test_numbers_may_be_secrets_too_and_empty_ones_are_shown_as_empty():
    assert parameters.masked({"password": 1234, "token": None, "api_key": "", "use_token": True}) == {
        "password": "***",
        "token": None,
        "api_key": "",
        "use_token": True,
    }


def test_the_settings_themselves_are_left_alone():
    settings = {"a": {"password": "x"}}
    parameters.masked(settings)
    assert settings == {"a": {"password": "x"}}


@given(st.text(max_size=8000))
def test_values_fit(text):
    cut = parameters.cut(text, 6000)
    assert len(cut) <= 6000
    if len(text) <= 6000:
        assert cut == text


def test_a_cut_says_how_much_is_missing():
    assert parameters.cut("x" * 100, 50).endswith("characters)")
    kept, missing = parameters.cut("x" * 9000, 6000).split(" … (+")
    assert len(kept) + int(missing.split()[0]) == 9000


@given(st.text(max_size=400))
def test_every_key_becomes_one_that_mlflow_takes(key):
    assert is_allowed(parameters.allowed_key(key))


@given(st.text(max_size=40), st.text(max_size=40))
def test_keys_that_differ_stay_apart(left, right):
    if left != right:
        assert parameters.allowed_key(left) != parameters.allowed_key(right)


@pytest.mark.parametrize("key", ["a.b.c", "train.grpo.kl", "a b", "x/y"])
def test_good_keys_stay_as_they_are(key):
    assert parameters.allowed_key(key) == key
