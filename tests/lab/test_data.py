"""Questions: what a decoder and an encoder are asked, and that steps depend on seed and number."""

from dataclasses import replace

import pytest
import torch

from whorl.lab import DataConfig, EvaluationConfig, ModelConfig, RunConfig, TrainingConfig
from whorl.lab.data import DataSource, open_data_source


@pytest.fixture(params=["decoder", "encoder"])
def source(request: pytest.FixtureRequest, small: RunConfig) -> DataSource:
    return open_data_source(replace(small, model=replace(small.model, kind=request.param)))


def test_a_batch_follows_from_seed_and_step(source: DataSource, small: RunConfig) -> None:
    one, again, other = source.get_batch(3), source.get_batch(3), source.get_batch(4)
    assert torch.equal(one.tokens, again.tokens)
    assert torch.equal(one.targets, again.targets)
    assert not torch.equal(one.tokens, other.tokens)
    seeded = open_data_source(replace(small, training=replace(small.training, seed=1)))
    assert not torch.equal(seeded.get_batch(3).tokens, open_data_source(small).get_batch(3).tokens)


def test_a_decoder_is_asked_for_the_next_token(small: RunConfig) -> None:
    questions = open_data_source(small).get_batch(1)
    assert questions.tokens.shape == questions.targets.shape == (4, 32)
    assert torch.equal(questions.tokens[:, 1:], questions.targets[:, :-1])


def test_an_encoder_is_asked_for_what_is_hidden(small: RunConfig) -> None:
    source = open_data_source(replace(small, model=replace(small.model, kind="encoder")))
    assert source.vocab == 257
    questions = source.get_batch(1)
    hidden = questions.tokens == 256
    assert bool((questions.targets[hidden] >= 0).all())
    assert 0.05 < float(hidden.float().mean()) < 0.3


def test_an_encoder_is_always_asked_something(small: RunConfig) -> None:
    model = replace(small.model, kind="encoder")
    training = replace(small.training, length=2, batch=3)
    evaluation = EvaluationConfig(multiples=(1.0,))
    source = open_data_source(replace(small, model=model, training=training, evaluation=evaluation))
    assert all(bool((source.get_batch(n).targets >= 0).any(1).all()) for n in range(50))


def test_the_same_tokens_are_judged_at_every_length(source: DataSource, small: RunConfig) -> None:
    judged = []
    for length in small.lengths:
        questions = source.get_evaluation(length)
        assert questions.tokens.shape == (6, length)
        judged.append(questions.targets[questions.judged].tolist())
    assert judged[0] == judged[1] == judged[2]
    assert len(judged[0]) >= 6


@pytest.mark.parametrize("kind", ["decoder", "encoder"])
@pytest.mark.parametrize("task", ["passkey", "copy", "reverse", "parity", "recall"])
def test_tasks(task: str, kind: str) -> None:
    config = RunConfig(
        model=ModelConfig(kind=kind),  # type: ignore[arg-type]
        data=DataConfig(task=task),
        training=TrainingConfig(length=64, batch=4),
        evaluation=EvaluationConfig(multiples=(1.0, 2.0), windows=5),
    )
    source = open_data_source(config)
    for questions in (source.get_batch(1), source.get_evaluation(128)):
        assert bool((questions.targets >= 0).any(1).all())
        assert torch.equal(questions.judged, questions.targets >= 0)
        assert int(questions.tokens.max()) < source.vocab
    assert not torch.equal(source.get_batch(1).tokens, source.get_batch(2).tokens)


def test_a_task_that_does_not_fit() -> None:
    config = RunConfig(
        data=DataConfig(task="passkey"),
        training=TrainingConfig(length=128),
        evaluation=EvaluationConfig(multiples=(0.05, 1.0)),
    )
    with pytest.raises(ValueError, match=r"the task 'passkey' needs at least \d+ tokens; got 6"):
        open_data_source(config)


def test_rows_of_tasks_are_mixed_into_text(small: RunConfig) -> None:
    training = replace(small.training, length=256, batch=8)
    data = replace(small.data, mixed=("retrieval", "copy"), mixed_share=0.75)
    config = replace(small, training=training, evaluation=EvaluationConfig(multiples=(1.0,)))
    plain, mixed = open_data_source(config), open_data_source(replace(config, data=data))
    one, other = plain.get_batch(2), mixed.get_batch(2)
    assert other.tokens.shape == other.targets.shape == (8, 256)
    assert torch.equal(one.tokens[:2], other.tokens[:2])
    assert bool((other.targets[:2] >= 0).all())
    answers = (other.targets[2:] >= 0).sum(1)
    assert bool(((answers > 0) & (answers < 256)).all())
    rows = [bytes(row.tolist()).decode() for row in other.tokens[2:]]
    assert all(" key is" in row for row in rows[:3])
    assert all("|" in row for row in rows[3:])
    assert torch.equal(mixed.get_batch(2).tokens, other.tokens)
    assert torch.equal(plain.get_validation().tokens, mixed.get_validation().tokens)
