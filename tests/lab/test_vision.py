"""The vision transformer, its images, and its training: symmetries, other resolutions, resuming."""

import itertools
import math
import os
import signal
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import whorl
from whorl.encodings import AxialRoPE, Learned
from whorl.lab import Interrupted, ModelConfig, TrainingConfig, TrainingProgress
from whorl.lab.image_training import compute_accuracy, train_classifier
from whorl.lab.images import (
    PATCH,
    ImageBatch,
    interpolate_images,
    load_digits,
    make_marks,
    open_image_task,
)
from whorl.lab.vision import VisionTransformer, build_coordinates, interpolate_grid_table

AXIAL, MIXED = "axial_rope(base=100)", "axial_rope(frequencies=mixed)"
ENCODINGS = (AXIAL, MIXED, "learned", "sinusoidal(base=100)", "nope")


def make_model(encoding: str, patch: int = 1, layers: int = 2) -> VisionTransformer:
    """A model with weights large enough that all of its parts matter."""
    config = ModelConfig(encoding=encoding, kind="encoder", layers=layers, width=16, heads=2)
    model = VisionTransformer(config, grid=4, classes=3, patch=patch)
    model.reset_parameters(1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.startswith(("blocks.", "head.")) and weight.dim() == 2:
                weight.mul_(20)
    return model


def draw_images(size: int = 4) -> Tensor:
    return torch.randn(5, 1, size, size, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_only_without_positions_the_order_of_patches_is_nothing(encoding: str) -> None:
    model, images = make_model(encoding), draw_images()
    order = torch.randperm(16, generator=torch.Generator().manual_seed(2))
    shuffled = images.flatten(2)[..., order].view_as(images)
    same = torch.allclose(model(images), model(shuffled), atol=1e-5)
    assert same == (encoding == "nope")


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_rows_and_columns_are_told_apart(encoding: str) -> None:
    model, images = make_model(encoding), draw_images()
    same = torch.allclose(model(images), model(images.mT), atol=1e-5)
    assert same == (encoding == "nope")


@pytest.mark.parametrize("encoding", [AXIAL, MIXED])
def test_rotated_patches_know_their_distances_only(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, images = make_model(encoding), draw_images()
    before = model(images)

    def shift(size: int, trained: int, coordinates: str) -> Tensor:
        return build_coordinates(size, trained, "index") + torch.tensor([[7], [3]])

    monkeypatch.setattr("whorl.lab.vision.build_coordinates", shift)
    torch.testing.assert_close(model(images), before, atol=1e-4, rtol=1e-4)


def test_the_model_is_the_sum_of_its_parts() -> None:
    """One layer with AxialRoPE, by hand from ``whorl.attention``."""
    model, images = make_model(AXIAL, patch=2, layers=1), draw_images(8)
    patches = torch.stack(
        [
            images[:, 0, r : r + 2, c : c + 2].flatten(1)
            for r in range(0, 8, 2)
            for c in range(0, 8, 2)
        ],
        dim=1,
    )
    (block,) = model.blocks
    x = model.embedding(patches)
    q, k, v, _ = block.split_heads(block.qkv(block.attention_norm(x)))  # type: ignore[operator]
    at = torch.tensor(list(itertools.product(range(4), repeat=2))).T
    mixed = whorl.attention(q, k, v, whorl.AxialRoPE(8, base=100.0), causal=False, positions=at)
    x = x + block.out(mixed.transpose(1, 2).flatten(2))  # type: ignore[operator]
    gate, up = block.gate_up(block.mlp_norm(x)).chunk(2, -1)  # type: ignore[operator]
    x = x + block.down(F.silu(gate) * up)  # type: ignore[operator]
    torch.testing.assert_close(model(images), model.head(model.norm(x).mean(1)))


def test_mixed_frequencies_belong_to_heads_and_layers() -> None:
    model = make_model(MIXED)
    first, second = (model.get_layer_encoding(n) for n in range(2))
    assert isinstance(first, AxialRoPE)
    assert isinstance(second, AxialRoPE)
    assert first is not second
    assert first.freqs.shape == (2, 2, 4)
    F.cross_entropy(model(draw_images()), torch.arange(5) % 3).backward()
    for one in (first, second):
        assert one.freqs.grad is not None
        assert float(one.freqs.grad.abs().max()) > 0


def test_sinusoidal_rows_and_columns_have_half_the_channels_each() -> None:
    model = make_model("sinusoidal(base=100)")
    zero = torch.zeros(1, 16, 16)
    added = model._embed(zero, build_coordinates(4, 4), 4, "rescaled")[0].view(4, 4, 16)
    assert torch.equal(added[2, :, :8], added[2, :1, :8].expand(4, 8))
    assert torch.equal(added[:, 2, 8:], added[:1, 2, 8:].expand(4, 8))
    assert torch.equal(added[1, 3, :8], added[0, 1, 8:])


def test_a_table_is_interpolated_on_both_axes() -> None:
    learned = Learned(6, max_length=16)
    found = interpolate_grid_table(learned, 7)
    plane = learned.weight.detach().T.view(1, 6, 4, 4)
    wanted = F.interpolate(plane, (7, 7), mode="bilinear", align_corners=True)
    torch.testing.assert_close(found, wanted[0].flatten(1).T)
    assert interpolate_grid_table(learned, 4) is learned.weight


def test_smooth_tables_and_sinusoids_agree_at_other_resolutions() -> None:
    """A table that is linear in its coordinates is the same linear function on a finer grid."""
    learned = Learned(2, max_length=16)
    with torch.no_grad():
        learned.weight.copy_(build_coordinates(4, 4).T)
    finer = interpolate_grid_table(learned, 6)
    torch.testing.assert_close(finer.double(), build_coordinates(6, 4).T)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_other_resolutions(encoding: str) -> None:
    model = make_model(encoding)
    rescaled = model(draw_images(6))
    assert rescaled.shape == (5, 3)
    if encoding == "learned":
        message = "a learned table for 4 x 4 patches has no rows for 6 x 6; use coordinates="
        with pytest.raises(ValueError, match=message):
            model(draw_images(6), coordinates="index")
        assert torch.equal(model(draw_images(), coordinates="index"), model(draw_images()))
        return
    counted = model(draw_images(6), coordinates="index")
    assert torch.allclose(rescaled, counted, atol=1e-5) == (encoding == "nope")


def test_wrong_images_and_encodings() -> None:
    model = make_model(AXIAL, patch=2)
    message = r"images must be \[B, channels, S, S\] with S a multiple of the patch, 2; got"
    for shape in ((1, 1, 5, 5), (1, 1, 4, 8), (1, 4, 4)):
        with pytest.raises(ValueError, match=message):
            model(torch.zeros(shape))
    with pytest.raises(ValueError, match="VisionTransformer: coordinates 'indx' is unknown"):
        model(draw_images(8), coordinates="indx")
    with pytest.raises(ValueError, match=r"VisionTransformer: grid must be a whole number"):
        VisionTransformer(ModelConfig(kind="encoder"), grid=0, classes=2)
    for spec in ("rope", "learned+axial_rope"):
        config = ModelConfig(encoding=spec, kind="encoder", width=16, heads=2)
        with pytest.raises(
            ValueError, match="must be one of axial_rope, learned, sinusoidal, nope"
        ):
            VisionTransformer(config, grid=4, classes=2)


def test_marks_are_labelled_by_their_direction() -> None:
    batch = make_marks(400, 18, seed=3)
    assert batch.images.shape == (400, 1, 18, 18)
    assert torch.equal(batch.images, make_marks(400, 18, seed=3).images)
    assert not torch.equal(batch.images, make_marks(400, 18, seed=4).images)
    cells = F.avg_pool2d(batch.images, PATCH).flatten(1)  # [400, 81]
    assert torch.equal((cells > 0.5).sum(1), torch.ones(400))
    assert torch.equal((cells < -0.5).sum(1), torch.ones(400))
    for image, label in zip(cells, batch.labels, strict=True):
        light, dark = int(image.argmax()), int(image.argmin())
        down, right = dark // 9 - light // 9, dark % 9 - light % 9
        degrees = math.degrees(math.atan2(down, right)) % 360
        wide = abs((degrees - 45 * int(label) + 180) % 360 - 180)
        assert wide < 22.5
    assert len(set(batch.labels.tolist())) == 8


def test_digits_are_split_by_the_seed() -> None:
    pytest.importorskip("sklearn")
    whole = load_digits()
    assert whole.images.shape == (1797, 1, 8, 8)
    assert float(whole.images.max()) == 1.0
    task, other = open_image_task("digits", 0), open_image_task("digits", 1)
    test = task.get_test(8)
    assert len(test.labels) == 500
    assert not torch.equal(test.labels, other.get_test(8).labels)
    held = {image.numpy().tobytes() for image in test.images}
    seen = {image.numpy().tobytes() for n in range(9) for image in task.get_batch(n, 99).images}
    assert not held & seen
    larger = task.get_test(15)
    assert torch.equal(larger.labels, test.labels)
    torch.testing.assert_close(larger.images[..., ::2, ::2], test.images)  # every second pixel
    assert interpolate_images(test.images, 8) is test.images
    with pytest.raises(ValueError, match="image task 'digit' is unknown; choose one of digits,"):
        open_image_task("digit", 0)


def test_without_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    load_digits.cache_clear()
    monkeypatch.setitem(sys.modules, "sklearn", None)
    message = r"the image task 'digits' needs sklearn: pip install 'whorl\[tsne\]'"
    with pytest.raises(ModuleNotFoundError, match=message):
        open_image_task("digits", 0)


TRAINING = TrainingConfig(length=16, steps=12, batch=8, warmup=2)


def train_marks(
    path: Path, training: TrainingConfig = TRAINING, stop_at: int | None = None, force: bool = False
) -> tuple[VisionTransformer, dict[str, list[float]]]:
    config = ModelConfig(encoding=MIXED, kind="encoder", layers=1, width=16, heads=2)
    model = VisionTransformer(config, grid=4, classes=8, patch=2)
    model.reset_parameters(0)

    def show(moment: TrainingProgress) -> None:
        if moment.done == stop_at:
            os.kill(os.getpid(), signal.SIGTERM)

    asked = f"{training.steps}"
    task = open_image_task("marks", 0)
    curve = train_classifier(model, task, training, path, asked=asked, show=show, force=force)
    return model, curve


def test_it_goes_on_where_it_stopped(tmp_path: Path) -> None:
    whole, curve = train_marks(tmp_path / "whole.safetensors")
    assert curve["x"] == list(range(1, 13))
    path = tmp_path / "parts.safetensors"
    with pytest.raises(Interrupted):
        train_marks(path, stop_at=5)
    assert path.exists()
    parts, again = train_marks(path)
    assert again == curve
    for one, other in zip(whole.parameters(), parts.parameters(), strict=True):
        assert torch.equal(one, other)
    more = TrainingConfig(length=16, steps=6, batch=8, warmup=2)
    with pytest.raises(ValueError, match=r"has other settings\. Choose another folder, or pass"):
        train_marks(path, more)
    assert train_marks(path, more, force=True)[1]["x"] == list(range(1, 7))


def test_accuracy_and_divergence(tmp_path: Path) -> None:
    model = make_model("nope")
    images = draw_images()
    labels = model(images).argmax(-1)
    assert compute_accuracy(model, ImageBatch(images, labels)) == 1.0
    labels[:2] = (labels[:2] + 1) % 3
    assert compute_accuracy(model, ImageBatch(images, labels)) == 0.6
    with torch.no_grad():
        model.head.weight.fill_(math.nan)
    task = open_image_task("marks", 0)
    config = ModelConfig(encoding="nope", kind="encoder", layers=1, width=16, heads=2)
    broken = VisionTransformer(config, grid=4, classes=8, patch=2)
    with torch.no_grad():
        broken.head.weight.fill_(math.nan)
    with pytest.raises(ValueError, match="training diverged at step 1: the loss is nan"):
        train_classifier(
            broken, task, TRAINING, tmp_path / "x.safetensors", asked="", show=lambda moment: None
        )
