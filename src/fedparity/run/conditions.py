"""The settings of an experiment that are numbers and words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field
from pydantic.dataclasses import dataclass as settings

from fedparity.arguments import Settings

File = Annotated[
    str | None, BeforeValidator(lambda value: str(value) if isinstance(value, Path) else value)
]


@settings(frozen=True, config=ConfigDict(extra="forbid"))
class Stop(metaclass=Settings):
    """Stop early when a validation summary has not improved.

    Parameters
    ----------
    metric
        A name of :data:`fedparity.metrics.SUMMARIES`.
    patience
        Evaluations without improvement before stopping.
    """

    metric: str = "mean_loss"
    patience: int = Field(default=5, ge=1)


@settings(frozen=True, config=ConfigDict(extra="forbid", allow_inf_nan=False))
class Conditions(metaclass=Settings):
    """Everything of an experiment that is a number or a word.

    Parameters
    ----------
    rounds
        Rounds of communication.
    cohort
        Clients asked a round: a whole number, a share in (0.0, 1.0], or None for all.
    sampling
        How the cohort is drawn, a text of :mod:`fedparity.run.sampling`: ``uniform`` or by ``size``
        (probability proportional to the examples), both without replacement,
        ``power_of_choice(candidates=20)`` for the highest losses, or ``available(file=trace.csv)``
        for clients that are not always there.
    weighting
        Aggregation weights before any part speaks: by ``size`` or ``uniform``. By default by size,
        and uniform where clients are drawn by size or by ``power_of_choice``.
    drop
        Probability that a client asked does not answer.
    min_replies
        A round with fewer replies changes nothing and is recorded as empty.
    server_lr
        Factor on the direction the server takes.
    seed
        The one seed of the run.
    engine
        ``auto``, ``loop`` or ``vmap``; ``flower`` is what a run on a real federation is recorded
        with.
    chunk
        Clients in one stack of the vmap engine; None bounds its memory by itself.
    device
        Where clients compute: ``cpu``, ``cuda``, ``mps``, or ``auto`` for an accelerator if there
        is one. The server stays on the processor. Nobody has run it on an accelerator yet.
    dtype
        ``float32`` or ``float64``.
    buffers
        What becomes of BatchNorm statistics: ``average``, ``local`` or ``refuse``.
    trainable
        The parameters that are trained, by pattern: ``classifier.*``; several are joined by commas.
        All others stay as they are on every client, are not sent, and their layers keep their
        statistics. None trains all.
    pretrained
        A safetensors file of tensors by the model's own names, with which it starts.
    evaluate_every
        Evaluate all clients every so many rounds; None does so about twenty times.
    checkpoint_every
        Rounds between checkpoints; None writes one when ten seconds have passed.
    keep
        Which model is kept: ``last``, or the one with the best validation summary of this name.
    lstar
        Rule for the best loss alone: ``best_validation``, ``train_plateau`` or ``none``. Or the
        numbers themselves: by client, or the name of a CSV or parquet file that has them.
    unseen
        Clients that never train and are evaluated with the final model: a share below 1, a number,
        or a list of names. Drawn by seed and name. None lets all train.
    predictions
        Keep what the final models say of every validation and test example.
    personal
        Keep the models that clients have of their own.
    """

    rounds: int = Field(default=100, ge=1)
    cohort: int | float | None = Field(default=None, gt=0)
    sampling: str = "uniform"
    weighting: Literal["size", "uniform"] | None = None
    drop: float = Field(default=0.0, ge=0, lt=1)
    min_replies: int = Field(default=1, ge=1)
    server_lr: float = Field(default=1.0, gt=0)
    seed: int = Field(default=0, ge=0)
    engine: Literal["auto", "loop", "vmap", "flower"] = "auto"
    chunk: int | None = Field(default=None, ge=1)
    device: Literal["auto", "cpu", "cuda", "mps"] = "cpu"
    dtype: Literal["float32", "float64"] = "float32"
    buffers: Literal["average", "local", "refuse"] = "average"
    trainable: str | None = None
    pretrained: File = None
    evaluate_every: int | None = Field(default=None, ge=1)
    checkpoint_every: int | None = Field(default=None, ge=1)
    keep: str = "last"
    lstar: str | dict[Any, Any] = "best_validation"
    unseen: Annotated[int | float | list[str] | None, Field(union_mode="left_to_right")] = None
    predictions: bool = True
    personal: bool = True
