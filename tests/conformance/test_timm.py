"""timm's rotary modules: the axial ones of EVA and DINOv3, the mixed one of RoPE-ViT."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import whorl


def grid(height: int, width: int) -> Tensor:
    at = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    return torch.stack(at).flatten(1)


@pytest.mark.parametrize("half", [False, True])
def test_axial(timm: Any, half: bool) -> None:
    peer = timm.RotaryEmbeddingCat(
        64, temperature=100.0, in_pixels=False, feat_shape=None, rotate_half=half
    )
    ours = whorl.AxialRoPE(64, base=100.0, layout="half" if half else "interleaved")
    x = torch.randn(2, 3, 35, 64)
    theirs = timm.apply_rot_embed_cat(x, peer.get_embed([5, 7]), half=half)
    torch.testing.assert_close(ours.rotate(x, grid(5, 7)), theirs, rtol=0, atol=1e-5)


def test_axial_in_pixels(timm: Any) -> None:
    peer = timm.RotaryEmbeddingCat(32, in_pixels=True, max_res=224, linear_bands=True)
    bands = timm.pixel_freq_bands(8, 224.0, linear_bands=True)
    ours = whorl.AxialRoPE(32, inv_freq=bands.repeat(2), layout="interleaved")
    ends = torch.stack(
        torch.meshgrid(torch.linspace(-1, 1, 4), torch.linspace(-1, 1, 6), indexing="ij")
    ).flatten(1)
    x = torch.randn(1, 2, 24, 32)
    theirs = timm.apply_rot_embed_cat(x, peer.get_embed([4, 6]))
    # Bands reach 350 radians, of which float32 angles keep five digits.
    torch.testing.assert_close(ours.rotate(x, ends), theirs, rtol=0, atol=1e-4)


@pytest.mark.parametrize("normalize", ["separate", "max", "min"])
def test_dinov3(timm: Any, normalize: str) -> None:
    peer = timm.RotaryEmbeddingDinoV3(64, temperature=100.0, normalize_coords=normalize).eval()
    ours = whorl.AxialRoPE(64, base=100.0, fastest=2 * math.pi)
    at = timm.make_coords_dinov3(5, 8, normalize_coords=normalize).T
    x = torch.randn(2, 3, 40, 64)
    theirs = timm.apply_rot_embed_cat(x, peer.get_embed([5, 8]), half=True)
    torch.testing.assert_close(ours.rotate(x, at), theirs, rtol=0, atol=1e-5)


def test_mixed_loads_their_weights(timm: Any) -> None:
    """freqs [2, depth, heads, R/2] of timm, axes x and y: one layer is [heads, 2, R/2] of ours."""
    peer = timm.RotaryEmbeddingMixed(4 * 16, depth=3, num_heads=4, grid_indexing="xy")
    x, columns_first = torch.randn(2, 4, 15, 16), grid(3, 5).flip(0)
    embeds = peer.get_embed([3, 5])
    for layer in range(3):
        ours = whorl.AxialRoPE(16, frequencies="mixed", num_kv_heads=4, layout="interleaved")
        ours.load_state_dict({"freqs": peer.freqs[:, layer].transpose(0, 1)})
        theirs = timm.apply_rot_embed_cat(x, embeds[layer])
        torch.testing.assert_close(ours.rotate(x, columns_first), theirs, rtol=0, atol=1e-5)


def test_mixed_starts_as_theirs_does(timm: Any) -> None:
    theirs = timm.init_random_2d_freqs(16, 1, 4, temperature=10.0)[:, 0].transpose(0, 1)
    ours = whorl.AxialRoPE(16, base=10.0, frequencies="mixed", num_kv_heads=4).freqs.detach()
    torch.testing.assert_close(ours.norm(dim=1), theirs.norm(dim=1))


def test_axial_in_two_parts(timm: Any) -> None:
    peer = timm.RotaryEmbedding(64, temperature=100.0, in_pixels=False)
    sin, cos = peer.get_embed([5, 7])
    x = torch.randn(2, 3, 35, 64)
    ours = whorl.AxialRoPE(64, base=100.0, layout="interleaved")
    theirs = timm.apply_rot_embed(x, sin, cos)
    torch.testing.assert_close(ours.rotate(x, grid(5, 7)), theirs, rtol=0, atol=1e-5)


def test_mrope_of_an_image(timm: Any) -> None:
    """Images have no time: their first axis stays at 0."""
    peer = timm.RotaryEmbeddingMRope(72, mrope_section=(12, 12, 12))
    ours = whorl.MRoPE(72, sections=(12, 12, 12), order="interleaved")
    x, at = torch.randn(2, 3, 35, 72), grid(5, 7)
    places = torch.cat((torch.zeros_like(at[:1]), at))
    theirs = timm.apply_rot_embed_cat(x, peer.get_embed([5, 7]), half=True)
    torch.testing.assert_close(ours.rotate(x, places), theirs, rtol=0, atol=1e-5)
