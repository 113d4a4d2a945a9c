"""The stored reference: it is what the recorded engine answers make, it binds itself, and bad files are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from replayed import ReplayedServer

from freehold.client.api import Endpoint
from freehold.engines.openai.dialect import OpenAIDialect
from freehold.engines.vllm.dialect import VllmDialect
from freehold.errors import EngineError, InputError
from freehold.records.base import encode, sha256_hex
from freehold.verify.make_reference import main, make_reference
from freehold.verify.reference import (
    Reference,
    embedded_references,
    open_reference,
    origin_of,
    write_reference,
)
from freehold.verify.texts import load_texts
from freehold.world import LocalWorld

CAPTURE = Path(__file__).resolve().parents[1] / "data" / "verify" / "vllm_float32_reference.json"
NAME = "embedded:smollm2-135m-instruct-q4_1"


def test_the_stored_reference_is_made_by_the_recorded_answers(smollm2_reference: Reference) -> None:
    with ReplayedServer(CAPTURE) as server:
        made = make_reference(
            Endpoint(base_url=server.base_url, model="smollm2-135m"),
            VllmDialect(),
            LocalWorld(),
            model=smollm2_reference.model,
            checkpoint_sha256=smollm2_reference.checkpoint_sha256,
            chat_template_sha256=smollm2_reference.chat_template_sha256,
            dtype="float32",
            weights=smollm2_reference.weights,
            command=smollm2_reference.command,
        )
    assert replace(made, date=smollm2_reference.date) == smollm2_reference


def test_it_is_bound_to_the_gguf_and_names_its_maker(smollm2_reference: Reference) -> None:
    assert smollm2_reference.checkpoint_sha256.startswith("b179c9523d0e")
    assert (smollm2_reference.engine, smollm2_reference.dtype) == ("vllm", "float32")
    assert "gguf_to_safetensors" in smollm2_reference.command
    assert {text.name for text in smollm2_reference.texts} == {t.name for t in load_texts().scored} | {"conversation"}
    assert sum(len(text.logprobs) for text in smollm2_reference.texts) == 311


def test_every_forced_token_is_listed_and_none_beats_the_top(smollm2_reference: Reference) -> None:
    for text in smollm2_reference.texts:
        for i, score in enumerate(text.scores()):
            assert score.logprob is not None
            assert score.top_logprob is not None
            assert score.logprob <= score.top_logprob <= 0.0
            assert (score.top_token_id == text.token_ids[i + 1]) == (score.logprob == score.top_logprob)


def test_it_goes_to_a_file_and_back(smollm2_reference: Reference, tmp_path: Path) -> None:
    path = tmp_path / "reference.json"
    write_reference(smollm2_reference, path)
    assert open_reference(str(path)) == smollm2_reference
    assert origin_of(smollm2_reference).sha256 == sha256_hex(path.read_bytes())


def test_a_prefix_goes_before_every_text_but_conversations(smollm2_reference: Reference) -> None:
    text = smollm2_reference.texts[0]
    longer = replace(
        text,
        logprobs=(-1.0, *text.logprobs),
        top_token_ids=(1, *text.top_token_ids),
        top_logprobs=(-1.0, *text.top_logprobs),
        runner_up_logprobs=(-2.0, *text.runner_up_logprobs),
    )
    conversation = next(t for t in smollm2_reference.texts if t.has_special)
    reference = replace(smollm2_reference, prefix_token_ids=(1,), texts=(longer, conversation))
    assert reference.scored_token_ids(longer) == (1, *text.token_ids)
    assert reference.scored_token_ids(conversation) == conversation.token_ids


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d["texts"][0]["logprobs"].pop(), "differ in length"),
        (lambda d: d["texts"][0]["token_ids"].pop(), "scores for"),
        (lambda d: d.update(texts=[]), "without texts"),
        (lambda d: [chat.update(is_asked=False) for chat in d["chats"]], "is asked"),
        (lambda d: d.update(engine=None), "engine"),
        (lambda d: d.update(colour="red"), "colour"),
        (lambda d: d["texts"][0].update(top_token_ids=["x"]), "top_token_ids"),
    ],
)
def test_a_reference_that_contradicts_itself_is_refused(
    smollm2_reference: Reference, tmp_path: Path, change: object, words: str
) -> None:
    document = json.loads(encode(smollm2_reference))
    change(document)  # type: ignore[operator]
    path = tmp_path / "reference.json"
    path.write_text(json.dumps(document))
    with pytest.raises(InputError) as caught:
        open_reference(str(path))
    assert words in caught.value.why


def test_names_that_do_not_exist_are_told_with_those_that_do(tmp_path: Path) -> None:
    assert embedded_references() == ("smollm2-135m-instruct-q4_1",)
    with pytest.raises(InputError) as caught:
        open_reference("embedded:nope")
    assert "smollm2-135m-instruct-q4_1" in caught.value.why
    with pytest.raises(InputError):
        open_reference("embedded:../limits")
    with pytest.raises(InputError):
        open_reference(str(tmp_path / "none.json"))
    with pytest.raises(InputError):
        open_reference(str(tmp_path))


def test_an_engine_that_cannot_score_makes_no_reference() -> None:
    with ReplayedServer(CAPTURE) as server:
        with pytest.raises(EngineError) as caught:
            make_reference(
                Endpoint(base_url=server.base_url, model="smollm2-135m"),
                OpenAIDialect(),
                LocalWorld(),
                model="m",
                checkpoint_sha256="0" * 64,
                chat_template_sha256=None,
                dtype="float32",
                weights="w",
                command="c",
            )
        server.unknown.clear()
    assert "cannot" in caught.value.what


def test_the_program_explains_a_missing_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--url", "http://127.0.0.1:9/v1", "--checkpoint", str(tmp_path / "none.gguf"), "--dtype", "float32"]
    status = main([*arguments, "--weights", "w", "--command", "c", "-o", str(tmp_path / "r.json")])
    assert status == 2
    assert "error:" in capsys.readouterr().err
    assert not (tmp_path / "r.json").exists()


def test_a_reference_without_an_end_is_refused() -> None:
    with pytest.raises(InputError, match="cannot read the reference") as caught:
        open_reference("/dev/zero")
    assert "longer than" in caught.value.why
