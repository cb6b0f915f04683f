"""What a step follows from, as functions of their arguments: parameter groups, learning rates."""

import dataclasses

import pytest
import torch

import whorl
from whorl.lab import Model, ModelConfig, RunConfig, TrainingConfig
from whorl.lab.data import open_data_source
from whorl.lab.muon import Muon, orthogonalize
from whorl.lab.optimization import (
    TrainingOptimizer,
    compute_rate_share,
    compute_validation_loss,
    group_by_part,
    group_parameters,
    list_validation_steps,
    take_step,
)
from whorl.processes import ParallelModel, ProcessGroup

TRAINED = ["learned", "relative_bias", "shaw", "transformer_xl", "t5", "deberta", "kerple"]
PER_LAYER = {"name": "rope", "frequencies": "trained"}


def built(encoding: object, **options: object) -> Model:
    config = ModelConfig(encoding=encoding, layers=2, width=32, heads=2, **options)  # type: ignore[arg-type]
    return Model(config, vocab=16, longest=64)


@pytest.mark.parametrize("encoding", [*whorl.names(), "learned+rope", "t5+alibi"])
def test_every_parameter_is_in_one_group(encoding: str) -> None:
    model = built(encoding, encoding_per="layer")
    groups = group_parameters(model)
    found = [id(weight) for group in groups.values() for weight in group.values()]
    assert sorted(found) == sorted(id(weight) for weight in model.parameters())
    inside = {id(weight) for weight in model.encoding.parameters()}
    inside |= {id(one) for part in model.layer_encodings for one in part.parameters()}
    assert {id(weight) for weight in groups["encoding"].values()} == inside
    assert set(groups["embeddings"]) == {"embedding.weight", "head.weight"}
    matrices = ("qkv", "out", "gate_up", "down")
    assert set(groups["matrices"]) == {
        f"blocks.{n}.{name}.weight" for n in range(2) for name in matrices
    }
    assert all(weight.dim() == 1 for weight in groups["norms"].values())


def test_a_tied_head_is_in_one_group_only() -> None:
    groups = group_parameters(built("rope", tied=True))
    assert set(groups["embeddings"]) == {"embedding.weight"}


@pytest.mark.parametrize("encoding", TRAINED)
def test_encodings_with_matrices_are_not_trained_by_muon(encoding: str) -> None:
    sizes = {weight.dim() for weight in group_parameters(built(encoding))["encoding"].values()}
    assert sizes
    assert encoding == "kerple" or max(sizes) > 1


def test_every_group_has_its_own_rate_and_decay() -> None:
    model = built("learned")
    training = TrainingConfig(
        weight_decay=0.25,
        learning_rate=0.5,
        embedding_learning_rate=0.25,
        encoding_learning_rate=0.125,
    )
    optimizer = TrainingOptimizer(model, training)
    groups = group_parameters(model)
    for one in model.parameters():  # no gradient: what is left of a step is the decay
        one.grad = torch.zeros_like(one)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    optimizer.step(1.0)
    kept = {
        "matrices": 1 - 0.5 * 0.25,
        "embeddings": 1 - 0.25 * 0.25,
        "norms": 1.0,
        "encoding": 1.0,
    }
    for group, weights in groups.items():
        for name, weight in weights.items():
            torch.testing.assert_close(weight.detach(), kept[group] * before[name])
    # The first step of Adam has the size of the rate, whatever the gradient.
    for share, half in ((1.0, 0.125), (0.5, 0.0625)):
        table = built("learned")
        optimizer = TrainingOptimizer(table, training)
        (own,) = group_parameters(table)["encoding"].values()
        old = own.detach().clone()
        for other in table.parameters():
            other.grad = torch.ones_like(other)
        optimizer.step(share)
        torch.testing.assert_close(old - own.detach(), torch.full_like(old, half))


@pytest.mark.parametrize(("steps", "warmup"), [(100, 10), (101, 7), (350, 30), (9, 0), (2, 1)])
def test_the_schedule(steps: int, warmup: int) -> None:
    training = TrainingConfig(steps=steps, warmup=warmup)
    shares = [compute_rate_share(training, step) for step in range(1, steps + 1)]
    # Up in a line to the peak ...
    for step in range(1, warmup + 1):
        assert shares[step - 1] == pytest.approx(step / warmup, rel=1e-12)
    # ... and down in a line, which reaches zero one step after the last.
    for step in range(warmup + 1, steps + 1):
        expected = 1 - (step - warmup) / (steps + 1 - warmup)
        assert shares[step - 1] == pytest.approx(expected, rel=1e-9)
    assert compute_rate_share(training, steps + 1) == 0.0
    assert 0 < shares[-1] <= 1 / (steps - warmup)


def test_a_schedule_that_is_all_warm_up() -> None:
    training = TrainingConfig(steps=4, warmup=4)
    assert [compute_rate_share(training, step) for step in range(1, 5)] == [0.25, 0.5, 0.75, 1.0]


@pytest.mark.parametrize("steps", [1, 7, 49, 50, 51, 100, 1999, 2000])
def test_validation_steps(steps: int) -> None:
    found = list_validation_steps(steps)
    assert found == sorted(set(found))
    assert found[-1] == steps
    assert found[0] >= 1
    assert len(found) == min(50, steps)


def test_validation_is_the_mean_over_its_tokens_and_changes_nothing(small: RunConfig) -> None:
    source = open_data_source(small)
    model = Model(
        dataclasses.replace(small.model, dropout=0.5), vocab=source.vocab, longest=small.longest
    )
    model.reset_parameters(0)
    model.train()
    batch = source.get_validation()
    found = compute_validation_loss(model, source)
    assert model.training
    assert found == compute_validation_loss(model, source)  # dropout is off
    with torch.no_grad():
        whole = float(model.eval().loss(batch.tokens, batch.targets))
    assert found == pytest.approx(whole, rel=1e-5)


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
    optimizer, norms = TrainingOptimizer(model, training), list[float]()

    def record(*_: object) -> None:
        grads = [weight.grad for weight in model.parameters() if weight.grad is not None]
        norms.append(float(torch.cat([grad.flatten() for grad in grads]).norm()))

    optimizer.optimizers[0].register_step_pre_hook(record)
    alone = ParallelModel(ProcessGroup(), model, model.loss)
    take_step(alone, optimizer, source, training, 1, group_by_part(model))
    assert norms == pytest.approx([1e-3], rel=1e-4)


@pytest.mark.parametrize("shape", [(8, 24), (24, 8), (16, 16), (1, 5)])
def test_orthogonal_matrices_keep_their_singular_vectors(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    matrices = torch.randn(3, *shape)
    for matrix, found in zip(matrices, orthogonalize(matrices), strict=True):
        left, _, right = torch.linalg.svd(matrix, full_matrices=False)
        core = left.mT @ found @ right.mT  # diagonal if the vectors are the same
        values = core.diagonal()
        torch.testing.assert_close(core, torch.diag(values), atol=2e-4, rtol=0)
        assert float(values.min()) > 0.6
        assert float(values.max()) < 1.3


def test_a_matrix_without_a_gradient_yet_is_left_alone() -> None:
    assert bool((orthogonalize(torch.zeros(1, 3, 4)) == 0).all())
    weight = torch.nn.Parameter(torch.ones(3, 4))
    Muon([weight]).step()
    assert bool((weight == 1).all())


@pytest.mark.parametrize("shape", [(48, 16), (16, 48), (16, 16)])
def test_muon_agrees_with_that_of_torch(shape: tuple[int, int]) -> None:
    """torch.optim.Muon makes matrices orthogonal in bfloat16, ours in float32."""
    torch.manual_seed(0)
    start = torch.randn(shape)
    ours, theirs = (torch.nn.Parameter(start.clone()) for _ in range(2))
    mine = Muon([ours], lr=0.1, weight_decay=0.5)
    peer = torch.optim.Muon([theirs], lr=0.1, weight_decay=0.5)
    for _ in range(3):
        gradient = torch.randn(shape)
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        mine.step()
        peer.step()
    found, expected = ours.detach(), theirs.detach()
    moved = float((expected - start).norm())
    assert float((found - expected).norm()) < 0.02 * moved  # bfloat16 has three digits
    assert moved > 0.1
