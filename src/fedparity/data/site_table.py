"""The table of one site, whose inputs wait for what all sites have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from fedparity.data import build, frame
from fedparity.data.build import Kind
from fedparity.data.federation import Federation
from fedparity.data.frame import Made, Roles, Study
from fedparity.data.prepare import Category
from fedparity.data.source import USUAL, TableRecipe
from fedparity.data.told import Common, Told, tell
from fedparity.errors import InputError


@dataclass(frozen=True, eq=False)
class SiteTable:
    """One client's table: it tells sums, and becomes a federation by what all have in common.

    Parameters
    ----------
    df
        The rows of the client.
    client
        Its name.
    roles
        What the columns are for; ``roles.client`` need not be a column.
    prepare
        ``federated`` or ``client``, as in :meth:`Federation.from_frame`.
    fractions, seed, outputs, kind
        As in :meth:`Federation.from_frame`.

    Examples
    --------
    >>> from fedparity.data.told import combine
    >>> one = SiteTable(pd.DataFrame({"age": [50, 70], "ill": [0, 1]}), "a", Roles("site", "ill"))
    >>> two = SiteTable(pd.DataFrame({"age": [90, 70], "ill": [1, 1]}), "b", Roles("site", "ill"))
    >>> common = combine([one.told(), two.told()])
    >>> common.prepared.columns[0].mean
    70.0
    """

    df: pd.DataFrame
    client: str
    roles: Roles
    prepare: Literal["federated", "client"] = "federated"
    fractions: Sequence[float] = USUAL
    seed: int = 0
    outputs: int | None = None
    kind: Kind | None = None

    def __post_init__(self) -> None:
        if not len(self.df):
            raise InputError(f"the table has no rows of client '{self.client}'")
        mine = self.df.assign(**{self.roles.client: self.client})
        object.__setattr__(self, "df", mine.reset_index(drop=True))
        object.__setattr__(self, "_study", Study.of(mine, self.roles, self.prepare))

    @classmethod
    def of(cls, recipe: TableRecipe, df: pd.DataFrame, client: str) -> SiteTable:
        """Return the table of a client by what an experiment says of tables.

        Of rows that name their client those of others are left out.
        """
        roles = recipe.roles
        if roles.client in df.columns:
            owner, names = build.owners(df[roles.client].to_numpy())
            df = df[np.asarray(names, dtype=object)[owner] == client]
        settings = {name: getattr(recipe, name) for name in ("fractions", "seed", "outputs")}
        return cls(df, client, roles, way(recipe), kind=recipe.kind, **settings)

    @property
    def study(self) -> Study:
        """What is known of the table."""
        found: Study = self.__dict__["_study"]
        return found

    def told(self) -> Told:
        """Return what the site tells of its training examples."""
        self.study.require()
        _, kind, outputs, classes = self._targets(self.kind, self.outputs)
        train = self.df.iloc[np.flatnonzero(self._parts() == 0)]
        return Told(
            self.client,
            self.prepare,
            len(train),
            tell(train, self.study.kinds),
            self.roles.target,
            self.roles.client,
            kind,
            outputs,
            classes,
        )

    def federation(self, common: Common) -> Federation:
        """Return the federation of this client alone, prepared as all sites prepare theirs."""
        made = common.prepared
        kinds = {
            rule.name: "category" if isinstance(rule, Category) else "number"
            for rule in made.columns
        }
        self._require(kinds, made.target)
        y, kind, outputs, _ = self._targets(common.kind, common.outputs, made.classes)
        owner = np.zeros(len(self.df), dtype=np.int64)
        codes, groups = build.groups({n: self.df[n] for n in self.roles.groups}, len(self.df))
        return Federation.of(
            Made(
                (self.client,),
                frame.dealt(self.df, made, y, owner, (self.client,), self._parts(), codes),
                outputs,
                kind,
                made.classes,
                groups,
                frame.of_clients(self.df, self.roles.client, self.roles.about),
                tuple(kinds.items()),
                made,
                tuple(finding for finding in self.study.findings if not finding.problem),
            )
        )

    def _require(self, kinds: Mapping[str, str], target: str | None) -> None:
        """Refuse what all have in common if it is not of this table."""
        own = self.study.kinds
        if set(kinds) != set(own) or target != self.roles.target:
            raise InputError(
                f"the common preparation is of the columns {', '.join(kinds)[:200]} and of the "
                f"target {target!r}, this table has {', '.join(own)[:200]}"
            )

    def _parts(self) -> build.Parts:
        if self.roles.part is not None:
            return build.marked(self.df[self.roles.part].to_numpy())
        owner = np.zeros(len(self.df), dtype=np.int64)
        return build.drawn(owner, (self.client,), self.fractions, self.seed)

    def _targets(
        self, kind: Kind | None, outputs: int | None, classes: Sequence[str] = ()
    ) -> tuple[npt.NDArray[Any], Kind, int, tuple[str, ...]]:
        """Return the targets; where ``classes`` names them, as places among these."""
        given = frame.target_of(self.df[self.roles.target])
        y, found, needed, own = build.targets(given, kind, outputs)
        if not classes:
            return y, found, needed, own
        strange = [name for name in own if name not in classes] or ([] if own else ["a number"])
        if strange:
            raise InputError(f"the target holds {strange[0]!r}, which the common classes lack")
        return np.array([list(classes).index(name) for name in own])[y], found, needed, own


def way(recipe: TableRecipe) -> Literal["federated", "client"]:
    """Return the way to prepare of a recipe, if it is one to which sums belong."""
    if recipe.prepare not in ("federated", "client"):
        raise InputError(
            f"prepare is '{recipe.prepare}': by themselves sites agree on 'federated' and on "
            "'client', for another way let load return a Federation"
        )
    return "client" if recipe.prepare == "client" else "federated"
