"""The larger models: published sizes, shapes, engines, and what of them stays on clients."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

import fedparity as fp
from fedparity.engines import choice
from fedparity.learning import models
from fedparity.learning.models.resnet import Block
from fedparity.testing import Bench


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("model", "shape", "outputs", "count"),
    [
        # torchvision's documentation: resnet18, mobilenet_v2 and vit_b_32, on ImageNet
        ("resnet18", (3, 224, 224), 1000, 11_689_512),
        ("mobilenet_v2", (3, 224, 224), 1000, 3_504_872),
        ("vit_b32", (3, 224, 224), 1000, 88_224_232),
        # small stem: 64 x (3 x 49 - 3 x 9) weights less, and 513 x 10 for 513 x 1000
        ("resnet18", (3, 32, 32), 10, 11_689_512 - 7_680 - 513 * 990),
        ("resnet18(norm=group)", (3, 32, 32), 10, 11_689_512 - 7_680 - 513 * 990),
        # Reddi et al. 2021, Table 9: 820,522 at 90 characters, with one bias a gate; torch has two
        ("char_lstm", (80,), 90, 820_522 + 2 * 4 * 256),
        # 4,096 x 64 of words; 512 x (64 + 128) and 512 x (128 + 128) with two biases; 512 x 2 + 2
        ("pair_lstm", (2, 20), 2, 262_144 + 99_328 + 132_096 + 1_026),
        # 48 x 64 + 64 of patches, 64 of the first word, 65 x 64 of places, 4 layers of two norms
        # of 128, 64 x 192 + 192, 64 x 64 + 64, 64 x 128 + 128 and 128 x 64 + 64; 128, and 650
        ("vit", (3, 32, 32), 10, 3_136 + 64 + 4_160 + 4 * 33_472 + 128 + 650),
        # 288 + 32, 18,432 + 64, 36,864 + 64, 576 x 128 + 128, 1,290
        ("cnn5", (1, 28, 28), 10, 320 + 18_496 + 36_928 + 73_856 + 1_290),
    ],
)
def test_parameters_are_as_many_as_published(model, shape, outputs, count):
    with torch.device("meta"):
        assert parameters(fp.Classification(model).factory(shape, outputs)) == count


@pytest.mark.parametrize("hidden", [50, 200, 400])
@pytest.mark.parametrize("layers", [1, 2, 4])
def test_an_mlp_of_any_width_and_depth_has_its_layers(hidden, layers):
    sizes = [784, *[hidden] * layers, 10]
    wanted = [(given, read) for read, given in pairwise(sizes)]
    with torch.device("meta"):
        made = models.mlp((1, 28, 28), 10, hidden=hidden, layers=layers)
    assert [tuple(p.shape) for p in made.parameters() if p.dim() > 1] == wanted
    assert parameters(made) == sum(given * read + given for given, read in wanted)


@pytest.mark.parametrize("channels", [16, 64, 128])
@pytest.mark.parametrize("layers", [2, 3, 5])
@pytest.mark.parametrize("hidden", [96, 384])
def test_a_cnn_of_any_width_and_depth_has_its_layers(channels, layers, hidden):
    with torch.device("meta"):
        made = models.cnn((3, 32, 32), 10, channels=channels, layers=layers, hidden=hidden)
    # 5x5 weights and a bias a channel; 32 -> 14 -> 5 pixels a side, kept from then on by padding
    convolutions = 75 * channels + (layers - 1) * 25 * channels**2 + layers * channels
    head = 25 * channels * hidden + hidden + hidden * hidden // 2 + hidden // 2 + 5 * hidden + 10
    assert parameters(made) == convolutions + head
    assert made(torch.zeros(2, 3, 32, 32, device="meta")).shape == (2, 10)


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        ("resnet18(norm=group)", (1, 16, 16)),
        ("mobilenet_v2(norm=group)", (3, 16, 16)),
        ("vit(dim=8, heads=2, depth=1)", (3, 8, 8)),
        ("cnn(channels=4, layers=4, hidden=8)", (1, 28, 28)),
        ("cnn5(channels=2, hidden=4)", (3, 9, 8)),
    ],
)
def test_images_of_any_size_that_fits_are_read(model, shape):
    made = fp.Classification(model).build(shape, 7, 0, torch.float32)
    assert made(torch.zeros(2, *shape)).shape == (2, 7)


@pytest.mark.parametrize(
    ("model", "shape", "message"),
    [
        ("resnet18", (4, 4), "reads images"),
        ("mobilenet_v2", (3, 4, 4), "at least 8x8"),
        ("vit", (3, 30, 30), "patches of 4 pixels do not fill 30x30"),
        ("vit(dim=6)", (3, 8, 8), "does not go into 4 heads"),
        ("char_lstm", (2, 5), "reads sequences"),
        ("pair_lstm", (5,), "reads two sequences"),
    ],
)
def test_inputs_that_do_not_fit_are_told_in_one_line(model, shape, message):
    with pytest.raises(fp.InputError, match=message):
        fp.Classification(model).build(shape, 2, 0, torch.float32)


@pytest.mark.parametrize(
    ("model", "x", "y", "kind"),
    [
        ("vit(patch=2, dim=4, heads=2, depth=1, hidden=4)", (3, 4, 4), (), None),
        ("char_lstm(embedding=2, hidden=3)", (5,), (5,), "tokens"),
        ("pair_lstm(vocabulary=7, embedding=2, hidden=3)", (2, 5), (), None),
    ],
)
def test_models_train_alike_on_every_engine_that_takes_them(model, x, y, kind):
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((12, *x)) if len(x) == 3 else rng.integers(0, 7, (12, *x))
    targets, client = rng.integers(0, 7, (12, *y)), np.repeat([0, 1], [4, 8])
    federation = fp.Federation.from_arrays(
        inputs, targets, client, fractions=(1, 0, 0), outputs=7, kind=kind
    )
    ends = []
    for engine in ("loop", "auto" if "lstm" in model else "vmap"):  # torch stacks no LSTM
        made = Bench(
            fp.Experiment(
                federation,
                model,
                solver=fp.Solver(lr=0.2, steps=2, batch=3),
                engine=engine,
                dtype="float64",
                lstar="none",
            )
        )
        start = made.server.x
        made.advance()
        assert not torch.equal(made.server.x, start)
        ends.append(made.server.x)
    torch.testing.assert_close(*ends, rtol=0, atol=1e-12)


class Looking(nn.Module):
    """A transformer layer of torch's own, for which a stack has no rule."""

    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.read = nn.Linear(1, 4)
        self.look = nn.TransformerEncoderLayer(4, 2, 4, dropout=0.0, batch_first=True)
        self.out = nn.Linear(4, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.out(self.look(self.read(x[..., None])).mean(1))
        return found


@pytest.mark.filterwarnings("error")
def test_a_transformer_of_torchs_takes_the_loop_without_a_word(alike):
    made = fp.Experiment(alike, Looking, rounds=1, lstar="none")
    assert made.choice == choice.Choice(
        "loop", "torch would compute a stack of the model one client at a time"
    )
    made.run()


def test_fedbn_keeps_the_batch_norm_of_resnet18_on_the_clients():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((8, 3, 8, 8)).astype(np.float32)
    federation = fp.Federation.from_arrays(
        x * np.repeat([1, 3], 4)[:, None, None, None],
        np.tile([0, 1], 4),
        np.repeat(["weak", "strong"], 4),
        fractions=(1, 0, 0),
    )
    experiment = fp.Experiment(
        federation, "resnet18", "fedbn", solver=fp.Solver(lr=0.05, steps=1), lstar="none"
    )
    made = Bench(experiment)
    start, layout = made.server.x, experiment.setup.layout
    made.advance()
    local = layout.normalisation()
    # 64, then 4 x 64, 5 x 128, 5 x 256 and 5 x 512 channels, a weight and a bias each
    assert int(local.sum()) == 2 * (64 + 256 + 640 + 1280 + 2560)
    assert torch.equal(made.server.x[local], start[local])
    assert not torch.equal(made.server.x[~local], start[~local])
    kept = made.door.store.gather(np.array([0, 1]))
    for part in ("bn", "buffers"):
        for values in kept[part].values():
            assert not torch.equal(values[0], values[1])


def test_a_block_adds_what_it_read():
    block = Block(2, 2, 1, "group")
    nn.init.zeros_(block.norm2.weight)
    x = torch.rand(1, 2, 4, 4)
    torch.testing.assert_close(block(x), x)


def test_padding_does_not_change_what_a_pair_says():
    made = models.pair_lstm((2, 4), 2, vocabulary=9, embedding=3, hidden=5)
    pair = torch.tensor([[[1, 2, 3, 0], [4, 5, 0, 0]]])
    longer = torch.cat([pair, torch.zeros(1, 2, 3, dtype=torch.int64)], -1)
    torch.testing.assert_close(made(pair), made(longer))
