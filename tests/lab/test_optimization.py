"""What a step follows from, as functions of their arguments: parameter groups, learning rates."""

import dataclasses
import math

import pytest
import torch

import whorl
from whorl.lab import Model, ModelConfig, RunConfig, TrainingConfig
from whorl.lab.data import open_data_source
from whorl.lab.optimization import (
    build_optimizer,
    compute_learning_rate,
    group_by_part,
    group_parameters,
    take_step,
)

TRAINED = ["learned", "relative_bias", "shaw", "transformer_xl", "t5", "deberta", "kerple"]
PER_LAYER = {"name": "rope", "frequencies": "trained"}


def built(encoding: object, **options: object) -> Model:
    config = ModelConfig(encoding=encoding, layers=2, width=32, heads=2, **options)  # type: ignore[arg-type]
    return Model(config, vocab=16, longest=64)


@pytest.mark.parametrize("encoding", [*whorl.names(), "learned+rope", "t5+alibi"])
def test_weight_decay_spares_encodings_norms_and_biases(encoding: str) -> None:
    model = built(encoding)
    decayed, spared = group_parameters(model)
    assert decayed.keys() | spared.keys() == {name for name, _ in model.named_parameters()}
    assert not decayed.keys() & spared.keys()
    inside = {id(weight) for weight in model.encoding.parameters()}
    inside |= {id(one) for part in model.layer_encodings for one in part.parameters()}
    assert not inside & {id(weight) for weight in decayed.values()}
    assert inside <= {id(weight) for weight in spared.values()}
    # All the rest goes by its shape: matrices are decayed.
    for weight in model.parameters():
        if id(weight) not in inside:
            group = decayed if weight.dim() > 1 else spared
            assert any(weight is other for other in group.values())
    assert {"embedding.weight", "blocks.1.qkv.weight"} <= decayed.keys()
    assert "norm.weight" in spared


@pytest.mark.parametrize("encoding", TRAINED)
def test_encodings_with_matrices_are_among_them(encoding: str) -> None:
    """Else the test above would show nothing: spared are matrices, not only vectors."""
    _, spared = group_parameters(built(encoding))
    sizes = {weight.dim() for name, weight in spared.items() if "encoding" in name}
    assert sizes
    assert encoding == "kerple" or max(sizes) > 1


def test_the_optimizer_decays_one_group_only() -> None:
    model = built("learned")
    training = TrainingConfig(weight_decay=0.25, learning_rate=0.5)
    optimizer = build_optimizer(model, training)
    decayed, spared = optimizer.param_groups
    assert (decayed["weight_decay"], spared["weight_decay"]) == (0.25, 0.0)
    assert [len(group["params"]) for group in (decayed, spared)] == [
        len(group) for group in group_parameters(model)
    ]
    for weight in model.parameters():  # no gradient: what is left of a step is the decay
        weight.grad = torch.zeros_like(weight)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    optimizer.step()
    for name, weight in model.named_parameters():
        kept = 1 - 0.5 * 0.25 if any(weight is one for one in decayed["params"]) else 1.0
        torch.testing.assert_close(weight.detach(), kept * before[name])


@pytest.mark.parametrize(("steps", "warmup"), [(100, 10), (101, 7), (350, 30), (9, 0), (2, 1)])
def test_the_schedule(steps: int, warmup: int) -> None:
    training = TrainingConfig(steps=steps, warmup=warmup, learning_rate=0.004)
    rates = [compute_learning_rate(training, step) for step in range(1, steps + 1)]
    # Up in a line to the peak ...
    for step in range(1, warmup + 1):
        assert rates[step - 1] == pytest.approx(0.004 * step / warmup, rel=1e-12)
    # ... and down by half a cosine to a tenth of it, at the last step.
    assert rates[-1] == pytest.approx(0.0004, rel=1e-12)
    falling = rates[max(0, warmup - 1) :]
    assert falling == sorted(falling, reverse=True)
    assert len(set(falling)) == len(falling)
    for step in range(warmup + 1, steps + 1):
        share = (step - warmup) / (steps - warmup)
        expected = 0.0004 + 0.0036 * math.cos(math.pi * share / 2) ** 2
        assert rates[step - 1] == pytest.approx(expected, rel=1e-9)


def test_halfway_is_halfway() -> None:
    training = TrainingConfig(steps=110, warmup=10, learning_rate=1.0)
    assert compute_learning_rate(training, 60) == pytest.approx((1 + 0.1) / 2)
    assert compute_learning_rate(training, 10) == 1.0


def test_a_schedule_that_is_all_warm_up() -> None:
    training = TrainingConfig(steps=4, warmup=4, learning_rate=1.0)
    assert [compute_learning_rate(training, step) for step in range(1, 5)] == [0.25, 0.5, 0.75, 1.0]


def test_parts_hold_every_parameter_once() -> None:
    model = built(PER_LAYER)
    parts = group_by_part(model)
    found = [id(weight) for weights in parts.values() for weight in weights]
    assert sorted(found) == sorted(id(weight) for weight in model.parameters())


def test_gradients_are_clipped_to_the_norm(small: RunConfig) -> None:
    source = open_data_source(small)
    model = Model(small.model, vocab=source.vocab, longest=small.longest)
    model.reset_parameters(0)
    training = dataclasses.replace(small.training, clip=1e-3)
    optimizer, norms = build_optimizer(model, training), list[float]()

    def record(*_: object) -> None:
        grads = [weight.grad for weight in model.parameters() if weight.grad is not None]
        norms.append(float(torch.cat([grad.flatten() for grad in grads]).norm()))

    optimizer.register_step_pre_hook(record)
    take_step(model, optimizer, source, training, 1, group_by_part(model))
    assert norms == pytest.approx([1e-3], rel=1e-4)
