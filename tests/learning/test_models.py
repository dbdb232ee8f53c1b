"""Model factories: the papers' models, and how to name one of your own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from fedparity.errors import InputError
from fedparity.imports import Allowed
from fedparity.learning import models

NETS = """
from torch import nn

class Plain(nn.Module):
    def __init__(self, width=3):
        super().__init__()
        self.out = nn.Linear(width, 2)

    def forward(self, x):
        return self.out(x)

class Narrow(Plain):
    pass

def small(shape, outputs):
    return nn.Linear(shape[0], outputs)

def other_words(dims, classes):
    return nn.Linear(dims[0], classes)

def wide(shape, outputs, *, width=4, bias=True):
    return nn.Sequential(nn.Linear(shape[0], width, bias=bias), nn.Linear(width, outputs))

def only_outputs(outputs):
    return nn.Linear(5, outputs)

def needs_depth(shape, outputs, depth):
    return nn.Sequential(*[nn.Linear(shape[0], shape[0]) for _ in range(depth)])

def nothing():
    return "not a model"

made = nn.Linear(2, 2)
number = 3
"""


@pytest.fixture
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of an importable module of a user's."""
    name = f"nets_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(NETS)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def resolve(text: str) -> models.Factory:
    """Return the factory of a text that a person wrote."""
    return models.resolve(text, Allowed.by(named=text))


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def out_shape(model: nn.Module, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(model(torch.zeros(2, *shape)).shape)


@pytest.mark.parametrize("name", ["linear", "mlp"])
@pytest.mark.parametrize("shape", [(60,), (8, 8), (1, 28, 28), (3, 32, 32)])
def test_linear_and_mlp_read_any_shape(name, shape):
    assert out_shape(models.MODELS[name](shape, 7), shape) == (2, 7)


@pytest.mark.parametrize("name", ["lenet", "cnn"])
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (3, 64, 64), (1, 16, 40)])
def test_convolutional_models_read_images_of_any_size_that_fits(name, shape):
    assert out_shape(models.MODELS[name](shape, 10), shape) == (2, 10)


@pytest.mark.parametrize("model", [models.MODELS[n] for n in ("linear", "mlp", "lenet", "cnn")])
def test_no_model_has_buffers(model):
    assert not list(model((3, 32, 32), 10).buffers())


def test_the_sizes_are_those_of_the_papers():
    assert parameters(models.linear((64,), 10)) == 64 * 10 + 10
    # 784*200 + 200, 200*200 + 200, 200*10 + 10
    assert parameters(models.mlp((1, 28, 28), 10)) == 157_000 + 40_200 + 2_010
    # 6*25 + 6, 16*6*25 + 16, 400*120 + 120, 120*84 + 84, 84*10 + 10
    assert parameters(models.lenet((1, 32, 32), 10)) == 156 + 2_416 + 48_120 + 10_164 + 850
    cnn = models.cnn((3, 32, 32), 10)
    assert [tuple(p.shape) for p in cnn.parameters() if p.dim() > 1] == [
        (64, 3, 5, 5),
        (64, 64, 5, 5),
        (384, 1600),
        (192, 384),
        (10, 192),
    ]


def test_padding_gives_28_pixels_the_lenet_of_32():
    padded = models.lenet((1, 28, 28), 10, padding=2)
    assert parameters(padded) == parameters(models.lenet((1, 32, 32), 10))
    assert out_shape(padded, (1, 28, 28)) == (2, 10)


def test_lenet_takes_relu_or_tanh():
    kinds = {
        name: {type(m) for m in models.lenet((1, 28, 28), 2, activation=name).modules()}
        for name in ("relu", "tanh")
    }
    assert nn.ReLU in kinds["relu"]
    assert nn.Tanh not in kinds["relu"]
    assert nn.Tanh in kinds["tanh"]
    assert nn.ReLU not in kinds["tanh"]


@pytest.mark.parametrize("name", ["lenet", "cnn"])
def test_images_that_are_too_small_are_refused_with_the_smallest_size(name):
    make = models.MODELS[name]
    with pytest.raises(InputError, match=f"^{name} reads images of at least 16x16 .* not 8x8$"):
        make((1, 8, 8), 10)
    with pytest.raises(InputError, match="16x16"):
        make((1, 15, 40), 10)
    assert out_shape(make((1, 16, 16), 10), (1, 16, 16)) == (2, 10)


def test_the_smallest_size_takes_the_padding_into_account():
    with pytest.raises(InputError, match="at least 12x12"):
        models.lenet((1, 11, 11), 10, padding=2)
    assert out_shape(models.lenet((1, 12, 12), 10, padding=2), (1, 12, 12)) == (2, 10)


@pytest.mark.parametrize("name", ["lenet", "cnn"])
def test_what_is_no_image_is_refused(name):
    with pytest.raises(InputError, match=r"\(channels, height, width\), not shape \(64,\)"):
        models.MODELS[name]((64,), 10)


@pytest.mark.parametrize("name", ["linear", "mlp"])
def test_single_numbers_are_refused(name):
    with pytest.raises(InputError, match="one dimension or more"):
        models.MODELS[name]((), 1)


def test_settings_are_checked_in_python_too():
    with pytest.raises(InputError):
        models.mlp((4,), 2, hidden=0)
    with pytest.raises(InputError):
        models.lenet((1, 28, 28), 2, activation="relo")  # type: ignore[arg-type]
    assert out_shape(models.mlp(torch.Size([4]), np.int64(2)), (4,)) == (2, 2)


def test_a_specification_names_a_model_with_settings():
    model = resolve("mlp(hidden=50, layers=1)")((8,), 3)
    assert [tuple(p.shape) for p in model.parameters()] == [(50, 8), (50,), (3, 50), (3,)]


@pytest.mark.parametrize("name", ["linear", "mlp"])
def test_a_softmax_output_is_the_probabilities_of_the_same_model(name):
    plain, ended = (models.build(resolve(t), (4,), 3, 0) for t in (name, f"{name}(softmax=true)"))
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(ended(x), plain(x).softmax(1))


def test_the_linear_model_may_start_without_bias():
    plain = models.build(models.linear, (4,), 3, 0)
    zero = models.build(resolve("linear(zero_bias=true)"), (4,), 3, 0)
    assert torch.equal(zero.out.weight, plain.out.weight)
    assert plain.out.bias.any()
    assert not zero.out.bias.any()


def test_a_bare_name_is_the_factory_of_the_table():
    assert resolve("linear") is models.linear


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mpl", "unknown model 'mpl': did you mean 'mlp'"),
        ("mlp(hiden=3)", "unknown setting of mlp 'hiden': did you mean 'hidden'"),
        ("linear(hidden=3)", "unknown setting of linear 'hidden'"),
        ("mlp(hidden=0)", "mlp: hidden should be greater than or equal to 1, got 0"),
        ("mlp(hidden=many)", "mlp: hidden should be a valid integer"),
        ("lenet(activation=relo)", "lenet: activation should be 'relu' or 'tanh', got 'relo'"),
        ("mlp+linear", "has 2 terms"),
        ("mlp(shape=3)", "unknown setting of mlp 'shape'"),
    ],
)
def test_a_wrong_specification_is_one_line_before_anything_is_built(text, message):
    with pytest.raises(InputError, match=message) as caught:
        resolve(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["small", "other_words"])
def test_an_import_path_names_a_factory_of_shape_and_outputs(nets, name):
    model = resolve(f"{nets}:{name}")((6,), 4)
    assert isinstance(model, nn.Linear)
    assert (model.in_features, model.out_features) == (6, 4)


def test_a_class_without_required_arguments_is_a_factory(nets):
    assert out_shape(resolve(f"{nets}:Plain")((3,), 2), (3,)) == (2, 2)
    assert out_shape(resolve(f"{nets}:Narrow")((3,), 2), (3,)) == (2, 2)


def test_a_factory_may_take_only_what_it_needs(nets):
    assert out_shape(resolve(f"{nets}:only_outputs")((5,), 4), (5,)) == (2, 4)


def test_an_import_path_may_have_settings(nets):
    model = resolve(f"{nets}:wide(width=9, bias=False)")((6,), 4)
    assert [tuple(p.shape) for p in model.parameters()] == [(9, 6), (4, 9), (4,)]
    assert out_shape(resolve(f"{nets}:Plain(width=7)")((3,), 2), (7,)) == (2, 2)
    assert len(list(resolve(f"{nets}:needs_depth(depth=2)")((6,), 4).children())) == 2


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("{nets}:smal", "unknown name in .*: did you mean 'small'"),
        ("{nets}:wide(wdth=3)", "unknown setting of wide 'wdth': did you mean 'width'"),
        ("{nets}:needs_depth", r"asks for \(shape, outputs, depth\): a factory takes"),
        ("{nets}:made", "is not a model factory"),
        ("{nets}:number", "is not a model factory"),
        ("no_such_package.nets:small", "cannot import .* No module named 'no_such_package'"),
        (":small", "cannot read"),
        ("..nets:small", "cannot read"),
        ("{nets}:", "cannot read"),
        ("{nets}:a:b", "cannot read"),
        ("{nets}:small.__class__", "cannot read"),
    ],
)
def test_a_wrong_import_path_is_one_line(nets, path, message):
    with pytest.raises(InputError, match=message) as caught:
        resolve(path.format(nets=nets))
    assert "\n" not in str(caught.value)


def test_a_module_that_fails_on_import_says_why(tmp_path, monkeypatch):
    (tmp_path / "nets_broken.py").write_text("raise RuntimeError('two\\nlines')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InputError, match=r"nets_broken:small': RuntimeError: two lines$"):
        resolve("nets_broken:small")


def test_adapting_twice_changes_nothing(nets):
    for name in ("small", "Plain", "only_outputs"):
        once = resolve(f"{nets}:{name}")
        assert models.adapt(once) is once


def test_adapting_a_model_of_the_table_gives_it_back():
    for make in models.MODELS.values():
        assert models.adapt(make) is make


def test_a_model_that_is_already_made_is_no_factory():
    with pytest.raises(InputError, match="Linear is not a model factory"):
        models.adapt(nn.Linear(2, 2))


def test_the_seed_decides_the_initial_parameters():
    def vector(seed: int) -> torch.Tensor:
        model = models.build(models.mlp, (4,), 2, seed)
        return nn.utils.parameters_to_vector(model.parameters()).detach()

    assert torch.equal(vector(3), vector(3))
    assert not torch.equal(vector(3), vector(4))


def test_a_factory_without_arguments_can_be_built():
    assert out_shape(models.build(lambda: nn.Linear(4, 2), (4,), 2, seed=0), (4,)) == (2, 2)


def test_building_leaves_the_global_generator_alone():
    before = torch.random.get_rng_state()
    models.build(models.linear, (4,), 2, seed=1)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_failing_factory_leaves_the_global_generator_alone():
    before = torch.random.get_rng_state()
    with pytest.raises(InputError):
        models.build(models.cnn, (4,), 2, seed=1)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_double_precision_starts_where_single_precision_does():
    single = models.build(models.linear, (4,), 2, seed=1)
    double = models.build(models.linear, (4,), 2, seed=1, dtype=torch.float64)
    for one, two in zip(single.parameters(), double.parameters(), strict=True):
        assert (one.dtype, two.dtype) == (torch.float32, torch.float64)
        assert torch.equal(one.double(), two)


def test_integer_buffers_keep_their_type():
    model = models.build(lambda shape, outputs: nn.BatchNorm1d(3), (3,), 2, 0, torch.float64)
    assert model.num_batches_tracked.dtype == torch.int64
    assert model.running_mean.dtype == torch.float64


def test_a_factory_that_makes_no_model_is_named(nets):
    with pytest.raises(InputError, match=r"nothing made a str, not an nn\.Module"):
        models.build(resolve(f"{nets}:nothing"), (3,), 2, seed=0)
