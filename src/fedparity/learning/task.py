"""What is learned: a model factory, a loss an example, metrics an example."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedparity import spec
from fedparity.arguments import made
from fedparity.errors import InputError
from fedparity.imports import UNKNOWN, Allowed, path_of, text_of
from fedparity.learning import augmentation, models
from fedparity.learning.augmentation import Augment
from fedparity.learning.frozen import Copies

Factory = Callable[..., nn.Module]
Model = Factory | str | nn.Module
"""A function that makes the model, the text of one, or a module of which copies are trained."""
DTYPES = {"float32": torch.float32, "float64": torch.float64}
Slope = Callable[[Tensor, Tensor], Tensor]
"""``(output, target)`` of single examples to the derivative of their losses in the output.

The output is ``[m, B, o]`` and the target ``[m, B]``. It is neither written to nor returned, for
what a slope returns is scaled in place. A task with a slope takes outputs as they lie, here and in
the losses beside it: their rows or their columns are contiguous, so reshape, do not view.
"""

GIVEN = ("model", "augment")
"""What the constructor of a task takes beside its settings."""

VECTOR = 16
"""Numbers that torch's softmax takes at once, along its dimension or beside it: fewer, one by one.

So many are the float32 numbers of AVX-512, the widest there is.
"""


@made
class Task:
    """A model factory with a loss.

    A task of your own derives from it. Settings that its constructor takes beside ``model`` and
    ``augment`` are kept as attributes of the same names, so that a run can record them; in a text
    it is named by its import path, ``mypackage.tasks:Ranking(margin=0.5)``.

    Parameters
    ----------
    model
        A function ``(shape, outputs) -> nn.Module`` or ``() -> nn.Module``, or its text: a name of
        :data:`fedparity.learning.models.MODELS` with settings, or an import path
        ``package.module:name``; or a module, which is trained from the parameters that it has.
    augment
        Another view of the same examples, ``(inputs, u) -> inputs`` with ``u`` a vector of
        :data:`fedparity.learning.augmentation.DRAWS` numbers in [0, 1), for self-regularisation.
    """

    name = "task"
    predicts: str | None = None
    """What its predictions are of, for metrics: classes, values or survival."""
    written: str | None = None
    """The text that the task was read from, where that names code elsewhere."""

    def __init__(self, model: Model, augment: Augment = augmentation.usual) -> None:
        self._augment = augment
        self.factory: Factory
        self.model_text: str | None
        if isinstance(model, str):
            self.factory, self.model_text = models.resolve(model, Allowed.by(named=model)), model
        elif isinstance(model, nn.Module):
            self.factory, self.model_text = Copies(model), None
        else:
            self.factory, self.model_text = model, _importable(model)

    @property
    def text(self) -> str:
        """The task as an experiment file has it, with all settings but the model."""
        if self.written is not None:
            return self.written
        known = inspect.signature(type(self)).parameters.values()
        own: dict[str, Any] = {
            p.name: getattr(self, p.name, UNKNOWN) for p in known if p.name not in GIVEN
        }
        if not type(self).__module__.startswith(f"{__package__}."):
            return text_of(self, own)
        chosen = {p.name: own[p.name] for p in known if own.get(p.name, p.default) != p.default}
        return str(spec.Spec(self.name, chosen))

    def build(
        self, shape: tuple[int, ...], outputs: int, seed: int, dtype: torch.dtype
    ) -> nn.Module:
        """Return a fresh module whose initial parameters depend on the seed alone."""
        return models.build(self.factory, shape, outputs, seed, dtype)

    def losses(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the loss of every example, ``[B, ...] -> [B]``."""
        raise NotImplementedError

    def metrics(self, output: Tensor, target: Tensor) -> dict[str, Tensor]:
        """Return further numbers of every example, each ``[B]``, to be averaged over a client."""
        return {}

    @property
    def base(self) -> str | None:
        """Which number a guess without inputs has too: ``accuracy``, ``loss``, or none."""
        return None

    def predictions(self, output: Tensor) -> Tensor:
        """Return what the outputs say of the examples, ``[B, ...]``: what metrics are given."""
        return output

    def mixed(self, outputs: Tensor, shares: Tensor) -> Tensor:
        """Return the output that stands for several models' predictions, mixed by shares.

        ``outputs`` are ``[M, ..., o]``, with the dimensions of ``shares`` in front; here their
        weighted mean.
        """
        return (_beside(shares, outputs) * outputs).sum(0)

    def augment(self, inputs: Tensor, u: Tensor) -> Tensor:
        """Return another view of a batch, made with the numbers ``u`` in [0, 1)."""
        return self._augment(inputs, u)


@made
class Classification(Task):
    """Cross-entropy on class labels; metric ``accuracy``.

    Parameters
    ----------
    model, augment
        As of :class:`Task`.
    weights
        A factor on the loss of the examples of each class, the same on all clients: what is rare
        may count for more. A client's loss is the mean over its examples of weight times
        cross-entropy; accuracies stay plain.
    """

    name, predicts = "classification", "classes"

    def __init__(
        self,
        model: Model,
        augment: Augment = augmentation.usual,
        weights: Sequence[float] | None = None,
    ) -> None:
        super().__init__(model, augment)
        self.weights = None if weights is None else tuple(float(weight) for weight in weights)
        if self.weights is not None and not 0 < min(self.weights or (0,)) <= max(self.weights):
            raise InputError(f"weights {self.weights} are not one number above 0 a class")
        self._factor = torch.tensor(self.weights or ())

    def build(
        self, shape: tuple[int, ...], outputs: int, seed: int, dtype: torch.dtype
    ) -> nn.Module:
        if self.weights is not None and len(self.weights) != outputs:
            raise InputError(f"{len(self.weights)} weights for {outputs} classes")
        return super().build(shape, outputs, seed, dtype)

    def losses(self, output: Tensor, target: Tensor) -> Tensor:
        if output.dim() == 2 and _by_class(output):
            found = F.cross_entropy(output.mT[None], target[None], reduction="none")[0]
        else:
            found = F.cross_entropy(output, target, reduction="none")
        return found if self.weights is None else found * self._factor.to(found)[target]

    def slope(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the derivative of each loss in its output: softmax minus the label."""
        found = _softmax(output)
        label = target[..., None]
        found.scatter_add_(-1, label, torch.full_like(label, -1, dtype=found.dtype))
        return found if self.weights is None else found.mul_(self._factor.to(found)[label])

    def metrics(self, output: Tensor, target: Tensor) -> dict[str, Tensor]:
        found = _right_by_class(output, target) if _by_class(output) else None
        right = output.argmax(-1) == target if found is None else found
        return {"accuracy": right.to(output.dtype)}

    @property
    def base(self) -> str | None:
        return "accuracy"

    def predictions(self, output: Tensor) -> Tensor:
        """Return the probability of each class, ``[B, classes]``."""
        return output.softmax(-1)

    def mixed(self, outputs: Tensor, shares: Tensor) -> Tensor:
        """Return the logarithm of the mixture of the models' probabilities."""
        return _mixture(outputs, shares)


class Regression(Task):
    """Squared error on real targets, the mean over several; metric ``error`` (absolute)."""

    name, predicts = "regression", "values"

    def losses(self, output: Tensor, target: Tensor) -> Tensor:
        return _over_targets((output.reshape(target.shape) - target).square())

    def slope(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the derivative of each loss in its output: twice the error over the targets."""
        return 2 / output.shape[-1] * (output - target.view_as(output))

    def metrics(self, output: Tensor, target: Tensor) -> dict[str, Tensor]:
        return {"error": _over_targets((output.reshape(target.shape) - target).abs())}

    @property
    def base(self) -> str | None:
        squared = type(self).losses is Regression.losses
        return "loss" if squared else None

    def predictions(self, output: Tensor) -> Tensor:
        """Return the value of each example, ``[B]``."""
        return output.squeeze(-1) if output.dim() == 2 else output


class NextToken(Task):
    """Cross-entropy of the next token, averaged over a sequence; metric ``accuracy``.

    The model maps ``[B, T]`` tokens to logits ``[B, T, V]``; the target is ``[B, T]``.
    """

    name = "next_token"

    def losses(self, output: Tensor, target: Tensor) -> Tensor:
        each = F.cross_entropy(output.flatten(0, 1), target.flatten(), reduction="none")
        return each.view(target.shape).mean(-1)

    def metrics(self, output: Tensor, target: Tensor) -> dict[str, Tensor]:
        return {"accuracy": (output.argmax(-1) == target).to(output.dtype).mean(-1)}

    @property
    def base(self) -> str | None:
        return "accuracy"

    def predictions(self, output: Tensor) -> Tensor:
        """Return the probability of each token at each place, ``[B, T, V]``."""
        return output.softmax(-1)

    def mixed(self, outputs: Tensor, shares: Tensor) -> Tensor:
        """Return the logarithm of the mixture of the models' probabilities."""
        return _mixture(outputs, shares)


def _over_targets(errors: Tensor) -> Tensor:
    """Return the mean over the targets of each example, ``[B]``; one target has no dimension."""
    return errors.mean(-1) if errors.dim() > 1 else errors


def slope_of(task: Task) -> Slope | None:
    """Return the derivative of the task's loss, if it is written beside that very loss."""
    for kind in type(task).__mro__:
        if "losses" in vars(kind):
            return getattr(task, "slope", None) if "slope" in vars(kind) else None
    return None


def takes_any_layout(task: Task) -> bool:
    """Tell whether the task's metrics are written beside its slope, for outputs as they lie."""
    homes = (next(k for k in type(task).__mro__ if n in vars(k)) for n in ("losses", "metrics"))
    return slope_of(task) is not None and len(set(homes)) == 1


def _softmax(output: Tensor) -> Tensor:
    """Return the classes' probabilities, in the layout in which they are found fastest."""
    if _by_class(output) and output.shape[-2] >= VECTOR:
        return output.mT.softmax(-2).mT
    classes = output.shape[-1]
    if classes >= VECTOR:
        return output.softmax(-1)
    laid = output.movedim(-1, 0).reshape(classes, -1).softmax(0)
    return laid.view(classes, *output.shape[:-1]).movedim(0, -1)


def _mixture(outputs: Tensor, shares: Tensor) -> Tensor:
    return (outputs.log_softmax(-1) + _beside(shares, outputs).log()).logsumexp(0)


def _beside(shares: Tensor, outputs: Tensor) -> Tensor:
    """Return the shares with as many dimensions as the outputs."""
    return shares.reshape(shares.shape + (1,) * (outputs.dim() - shares.dim()))


def _by_class(output: Tensor) -> bool:
    """Tell whether outputs lie class by class, so that torch would copy them for other work."""
    return output.dim() > 1 and not output.is_contiguous() and output.mT.is_contiguous()


def _right_by_class(output: Tensor, target: Tensor) -> Tensor | None:
    """Return which outputs ``[B, classes]``, class by class, are largest at the target's class.

    None where two classes share the largest output, of which ``argmax`` takes the first one.
    """
    if output.dim() > 2 or output.device.type != "cpu":
        return None
    most = output.mT.amax(0)
    if int((output.mT == most).sum()) != len(most):
        return None
    return output.mT.gather(0, target[None])[0] == most


def _importable(factory: Factory) -> str | None:
    """Return the text under which ``factory`` can be found again, or None."""
    for name, known in models.MODELS.items():
        if known is factory:
            return name
    return path_of(factory)
