"""Ways to deal the examples of one dataset to clients, each named after its source.

Every scheme is a frozen dataclass with one method, ``assign(labels, natural, clients, rng)``,
which returns the client number of each example, or -1 for an example that no client gets.
``natural`` holds the dataset's own client numbers where it has them. A scheme of your own is any
object with that method; in a text it is named by its import path, as in
``mypackage.schemes:Mine(share=0.5)``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from fedparity import imports, spec
from fedparity.arguments import Settings
from fedparity.data.partitioner import Dealt, Partitioner
from fedparity.data.split import Ints
from fedparity.errors import InputError
from fedparity.imports import Allowed

Labels = npt.NDArray[Any]
STRICT = ConfigDict(extra="forbid")


@runtime_checkable
class Partition(Protocol):
    """Anything that says which client gets which example."""

    def assign(
        self, labels: Labels, natural: Ints | None, clients: int | None, rng: np.random.Generator
    ) -> Ints:
        """Return a client number in ``range(clients)``, or -1, for each example."""


@dataclass(frozen=True, config=STRICT)
class IID(metaclass=Settings):
    """Every client gets an equal share of the shuffled examples.

    Sizes differ by at most one. (McMahan et al. 2017, section 3.)
    """

    def assign(
        self, labels: Labels, natural: Ints | None, clients: int | None, rng: np.random.Generator
    ) -> Ints:
        """Deal a random permutation, one example a client in turn."""
        clients = _enough("iid", clients, len(labels), 1)
        owner = np.empty(len(labels), dtype=np.int64)
        owner[rng.permutation(len(labels))] = np.arange(len(labels)) % clients
        return owner


@dataclass(frozen=True, config=STRICT)
class Dirichlet(metaclass=Settings):
    r"""Every class is dealt to the clients in proportions drawn from a Dirichlet distribution.

    .. math:: p_c \sim \mathrm{Dir}(\alpha \mathbf{1}_K), \qquad
              \text{client } k \text{ gets the share } p_{ck} \text{ of class } c

    Small ``alpha`` gives unlike clients of unlike sizes, large ``alpha`` approaches IID.

    Parameters
    ----------
    alpha
        Concentration.
    min_size
        All proportions are drawn again while a client has fewer examples. The default of 10, that
        of NIID-Bench, leaves each client a validation and a test example under the usual
        fractions.
    retries
        How often they are drawn again before giving up.

    Notes
    -----
    This is the per-class scheme of the EAGLE paper's appendix and of NIID-Bench ("label
    distribution skew"), in which sizes vary. The per-client scheme of Hsu et al. (2019), which
    draws the classes of a client and keeps sizes equal, is another one of the same name.

    References
    ----------
    Erraji, Perrot, Bellet. Loss gap parity for fairness in heterogeneous federated learning. 2026.
    Yurochkin et al. Bayesian nonparametric federated learning of neural networks. ICML 2019.
    Li, Diao, Chen, He. Federated learning on non-IID data silos. ICDE 2022.
    """

    alpha: float = Field(gt=0, le=1e6, description="concentration")
    min_size: int = Field(default=10, ge=1, description="fewest examples a client may have")
    retries: int = Field(default=100, ge=0, le=100_000, description="draws before giving up")

    def assign(
        self, labels: Labels, natural: Ints | None, clients: int | None, rng: np.random.Generator
    ) -> Ints:
        """Draw until every client has ``min_size`` examples, then deal each class."""
        clients = _enough("dirichlet", clients, len(labels), self.min_size)
        classes, n = np.unique(_classes("dirichlet", labels), return_counts=True)
        for _ in range(self.retries + 1):
            shares = rng.dirichlet(np.full(clients, self.alpha), size=len(classes))
            counts = np.stack([_counts(share, int(m)) for share, m in zip(shares, n, strict=True)])
            if counts.sum(axis=0).min() >= self.min_size:
                return _dealt(labels, classes, counts, rng)
        raise InputError(
            f"dirichlet(alpha={self.alpha}): after {self.retries + 1} draws some client still has "
            f"fewer than {self.min_size} examples: raise alpha, or lower clients ({clients}) or "
            "min_size"
        )


@dataclass(frozen=True, config=STRICT)
class Shards(metaclass=Settings):
    """Examples are sorted by label and cut into shards; every client gets ``per_client`` of them.

    With two shards a client sees about two classes (McMahan et al. 2017, section 3: "pathological
    non-IID"). Shards differ in size by at most one example. Values of a regression are sorted too.
    """

    per_client: int = Field(default=2, ge=1, description="shards a client gets")

    def assign(
        self, labels: Labels, natural: Ints | None, clients: int | None, rng: np.random.Generator
    ) -> Ints:
        """Sort, cut, and deal the shards at random."""
        clients = _enough("shards", clients, len(labels), self.per_client)
        shards = clients * self.per_client
        owner_of_shard = rng.permutation(shards) % clients
        owner = np.empty(len(labels), dtype=np.int64)
        place = np.arange(len(labels)) * shards // len(labels)
        owner[np.argsort(labels, kind="stable")] = owner_of_shard[place]
        return owner


@dataclass(frozen=True, config=STRICT)
class ByClass(metaclass=Settings):
    """Client k gets class k, modulo the number of clients.

    Parameters
    ----------
    classes
        Only these classes, in this order; examples of others are left out. With
        ``classes=[6, 2, 0]`` there are three clients: shirt, pullover and T-shirt of
        Fashion-MNIST, as in the AFL and q-FFL papers (Mohri et al. 2019, Li et al. 2020).
    """

    classes: tuple[int, ...] | None = Field(default=None, description="classes kept, in order")

    def assign(
        self, labels: Labels, natural: Ints | None, clients: int | None, rng: np.random.Generator
    ) -> Ints:
        """Give each class to its client."""
        present = np.unique(_classes("by_class", labels))
        kept = present if self.classes is None else np.asarray(self.classes, dtype=np.int64)
        absent = np.setdiff1d(kept, present)
        if len(absent):
            raise InputError(f"by_class: class {absent[0]} does not occur in the data")
        if len(np.unique(kept)) < len(kept) or not len(kept):
            raise InputError("by_class: classes must be different, and at least one")
        clients = len(kept) if clients is None else clients
        if not 1 <= clients <= len(kept):
            raise InputError(f"by_class: {clients} clients for {len(kept)} classes: take fewer")
        client_of = np.full(int(present[-1]) + 1, -1, dtype=np.int64)
        client_of[kept] = np.arange(len(kept)) % clients
        return client_of[labels]


@dataclass(frozen=True, config=STRICT)
class Natural(metaclass=Settings):
    """The dataset's own clients: writers, hospitals, sensors.

    ``clients`` takes a seeded sample of that many of them, by default all.
    """

    min_examples: int = Field(default=1, ge=1, description="smaller clients are left out")

    def assign(
        self, labels: Labels, natural: Ints | None, clients: int | None, rng: np.random.Generator
    ) -> Ints:
        """Number the chosen clients in their own order."""
        if natural is None:
            raise InputError(
                "natural: this dataset has no clients of its own: name a "
                "partition, such as 'dirichlet(alpha=0.1)'"
            )
        kept = np.flatnonzero(np.bincount(natural) >= self.min_examples)
        if not len(kept) or (clients is not None and not 1 <= clients <= len(kept)):
            raise InputError(
                f"natural: {clients or 'some'} clients asked, {len(kept)} have at least "
                f"{self.min_examples} examples"
            )
        if clients is not None:
            kept = np.sort(rng.choice(kept, clients, replace=False))
        client_of = np.full(int(natural.max()) + 1, -1, dtype=np.int64)
        client_of[kept] = np.arange(len(kept))
        return client_of[natural]


PARTITIONS: Mapping[str, Callable[..., Partition]] = {
    "iid": IID,
    "dirichlet": Dirichlet,
    "shards": Shards,
    "by_class": ByClass,
    "natural": Natural,
}


def as_partition(scheme: Partition | str) -> Partition:
    """Return the scheme a text such as ``"dirichlet(alpha=0.1)"`` names; an object is kept."""
    made = read(scheme, Allowed.by(named=scheme)) if isinstance(scheme, str) else scheme
    if isinstance(made, Partitioner) and not isinstance(made, type):
        made = Dealt(made, imports.text_of(made))
    if isinstance(made, type) or not isinstance(made, Partition):
        raise InputError(f"{made!r} is no partition: give 'iid', or an object such as IID()")
    return made


def read(text: str, allowed: Allowed) -> Partition:
    """Return the scheme a text names, which may name the code that is allowed."""
    term = spec.parse_one(text)
    made = imports.make("partition", term, PARTITIONS, allowed, (Partition, Partitioner))
    return Dealt(made, str(term)) if isinstance(made, Partitioner) else made


def partition_text(scheme: Partition) -> str:
    """Return the text of a scheme, with all settings."""
    for name, kind in PARTITIONS.items():
        if type(scheme) is kind:
            return str(spec.written(name, scheme))
    return scheme.text if isinstance(scheme, Dealt) else imports.text_of(scheme)


def deal_alike(labels: Labels, owner: Ints, new: Labels, rng: np.random.Generator) -> Ints:
    """Deal ``new`` examples so that each class is spread over clients as in ``labels``.

    A class that no client holds is left out (-1).
    """
    held = owner >= 0
    clients = int(owner.max()) + 1
    classes = np.unique(labels[held])
    counts = np.zeros((len(classes), clients), dtype=np.int64)
    np.add.at(counts, (np.searchsorted(classes, labels[held]), owner[held]), 1)
    arriving = [int((new == value).sum()) for value in classes]
    shares = counts / counts.sum(axis=1, keepdims=True)
    dealt = np.stack([_counts(share, n) for share, n in zip(shares, arriving, strict=True)])
    return _dealt(new, classes, dealt, rng)


def _counts(share: npt.NDArray[np.float64], n: int) -> Ints:
    """Cut n examples at the cumulated shares: whole numbers that sum to n."""
    cuts = np.round(np.cumsum(share) * n).astype(np.int64)
    cuts[-1] = n
    return np.diff(cuts, prepend=0)


def _dealt(labels: Labels, classes: Labels, counts: Ints, rng: np.random.Generator) -> Ints:
    """Give ``counts[c, k]`` random examples of class c to client k."""
    owner = np.full(len(labels), -1, dtype=np.int64)
    for value, row in zip(classes, counts, strict=True):
        examples = rng.permutation(np.flatnonzero(labels == value))
        owner[examples] = np.repeat(np.arange(len(row)), row)
    return owner


def _enough(name: str, clients: int | None, n: int, each: int) -> int:
    if clients is None or clients < 1:
        raise InputError(f"{name}: say how many clients, as in clients=10")
    if n < clients * each:
        raise InputError(
            f"{name}: {n} examples are too few for {clients} clients of at least {each}: "
            "take fewer clients"
        )
    return clients


def _classes(name: str, labels: Labels) -> Labels:
    if labels.dtype.kind == "f":
        raise InputError(f"{name}: needs classes, and this dataset has values")
    return labels
