"""The models of the papers, and how to name one of your own.

A model factory is a function ``name(shape, outputs, **settings) -> nn.Module``: ``shape`` is that
of one example, without the batch, and ``outputs`` the number of classes or of targets.
Of these models resnet18 and mobilenet_v2 have BatchNorm, unless ``norm="group"``; none has Dropout.
"""

from typing import TYPE_CHECKING, Any

from fedparity.errors import absent
from fedparity.learning.models.convolutional import cnn, cnn5, lenet
from fedparity.learning.models.dense import linear, mlp
from fedparity.learning.models.mobilenet import mobilenet_v2
from fedparity.learning.models.naming import MODELS, Factory, adapt, build, resolve
from fedparity.learning.models.recurrent import char_lstm, pair_lstm
from fedparity.learning.models.resnet import resnet18
from fedparity.learning.models.shapes import Shape
from fedparity.learning.models.transformer import vit, vit_b32

__all__ = [
    "MODELS",
    "Factory",
    "Shape",
    "adapt",
    "build",
    "char_lstm",
    "cnn",
    "cnn5",
    "lenet",
    "linear",
    "mlp",
    "mobilenet_v2",
    "pair_lstm",
    "resnet18",
    "resolve",
    "vit",
    "vit_b32",
]

if not TYPE_CHECKING:  # a type checker finds a wrong name by itself

    def __getattr__(name: str) -> Any:
        raise absent("fedparity.models", name, __all__)
