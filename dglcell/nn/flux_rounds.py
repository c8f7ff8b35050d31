"""Compute the growth of strains by rounds of messages between reactions and metabolites (flux balance)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dglcell.graph.resident import ResidentCell, ResidentRelation
from dglcell.graph.schema import CONVERTS, METABOLITE, REACTION
from dglcell.graph.wild_type import WildTypeBalance
from dglcell.kernels.spmm import spmm
from dglcell.nn.exact_growth import balance_matrix, exact_growth
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.sent import blocked_reactions, strengths

PARTS = (16, 8, 4, 2, 1)
"""The growth is noted after each of these parts of the rounds: how fast it settles says how reliable it is."""

PRIMAL_WEIGHT = 1.0
"""Steps of fluxes have this size relative to those of prices."""

FIRST_RESTART, RESTART_SHARE = 32, 0.3
"""Rounds restart from their present state after so many, and later after this share of all rounds so far."""

SCALE_ROUNDS = 20
"""In so many rounds unused reactions and metabolites take the scale of their neighbours."""

LEAST_SCALE, LARGEST_FLUX = 1e-10, 1e3
"""These are the smallest scale of a flux, and the largest flux in units of its scale."""

UNCHANGED = 1e-6
"""A reaction leaves a pool as it is if it makes and uses amounts of it that differ by less of their sum."""

TOLERANCE = 1e-5
"""Fluxes are balanced if no metabolite is made and used in amounts that differ by more of its turnover, and growth has
settled if it moved by less in the second half of the rounds."""

DECIMALS = 4
"""The growth of solved strains is rounded to so many decimals; else equal growth would differ in the last digits."""

PARSIMONY = 0.1
"""The fluxes of the wild type, all together, cost this share of its growth where fluxes are asked for."""

STEPS = 2**20
"""Strengths that differ by less than one part in so many are taken for the same."""

MEDIUM_BITS = 0x2545F4914F6CDD1D
"""Strains that are alike but for their medium are told apart by multiples of this number."""

TRAIN_ON_STRENGTHS = "delete these genes, or train a model on strains that weaken genes; its rounds take strengths"
"""A model with rounds for deletions alone cannot say more."""

STRAINS = 256
"""So many strains are solved at a time."""

MOST_KNOWN = 2**23
"""So many numbers are kept of strains that were solved."""


@dataclass(frozen=True)
class GrowthShares:
    """Hold by which reactions the growth of B strains differs from that of the wild type.

    Attributes:
        nodes: [G] one reaction node of each group of nodes with the same metabolites.
        shares_PGB: [len(PARTS), G, B] the share of each group in the change of growth after each part of the rounds.
        wild_type_G: fluxes of the wild type, in the unit of the metabolic model.
        flux_GB: fluxes of the strains after all rounds.
    """

    nodes: Tensor
    shares_PGB: Tensor
    wild_type_G: Tensor
    flux_GB: Tensor


class FluxRounds(nn.Module):
    r"""Find by messages the growth that a strain's own graph allows, relative to the wild type's.

    Flux balance analysis asks for the fluxes x that grow fastest: maximise :math:`c^T x` where :math:`S x = 0` and
    :math:`l \le x \le u`, with x = 0 for lost reactions. It is solved by the primal–dual hybrid gradient method: in a
    round every metabolite asks a price that rises while more of it is used than made, and every reaction changes its
    flux by what it earns at these prices,

    .. math:: x' = [x + \tau (c - S^T y)]_l^u, \qquad y' = y + \sigma S (2 x' - x),

    which are messages along the strain's surviving edges, one in each direction (Chambolle and Pock 2011, *J. Math.
    Imaging Vis.* 40:120, with the diagonal steps of Pock and Chambolle 2011, *ICCV*). Each round is reflected and drawn
    towards an anchor, which is moved from time to time (Lu and Yang 2024, arXiv 2407.16144). Strains start from the
    wild type's fluxes and prices. Nothing is trained, so the growth of a set of lost reactions is computed once. Where
    its last fluxes balance every metabolite, a strain can have these fluxes, so that it grows no less. It is *solved*
    if its growth has also settled there: it then grows no more.

    Cofactors are turned over much faster than they are made, and no price of a single one shows soon enough that their
    synthesis is lost. So a pool of metabolites has a balance and a price of its own (``conserved_pools``): it receives
    messages from the reactions that change the pool as a whole. These balances follow from the others, so that the
    fluxes that satisfy them are the same.

    In each medium strains start from the fluxes and prices of the wild type there. A reaction of strength s carries at
    most s times its capacity, the largest flux that the wild type can need of it in that medium. Enzyme complexes of
    one reaction are as strong as the strongest of them.

    With ``fluxes`` as many further rounds give the fluxes themselves (`changes`). Many fluxes allow the same growth, so
    that every flux has a small cost there: of those with the fastest growth the smallest are found, as by parsimonious
    flux balance analysis (Lewis et al. 2010, *Mol Syst Biol* 6:390). The cost slows down only growth for whose last
    part a strain needs ten times the fluxes of the wild type.

    With ``exact`` linear programs find the growth of strains that the rounds leave unsolved (``exact_growth``).

    Args:
        cell: a cell graph whose strains lose blocked reactions.
        rounds: number K of rounds.
        limited: whether strains weaken genes, or the cell graph has media.
        fluxes: whether fluxes are asked for; not where the cell graph has media.
        exact: whether linear programs solve what the rounds leave unsolved.

    Attributes:
        reactions: [N, 4] for each reaction node: flux of the wild type, least and largest flux, contribution to growth;
            if limited [media, N, 4], with one medium where the cell graph has none.
        prices: [M] prices of metabolites in the wild type; if limited [media, M].
        pools: [M, 2] number of the pool of each metabolite, -1 for none, and its weight; if limited [media, M, 2]; None
            for a cell without pools, as the checkpoints of earlier versions have it.
        capacities: [media, N] capacity of each reaction node, if limited.
        units: [media] growth of the wild type in each, relative to that in the model's own medium, if limited.
    """

    reactions: Tensor
    prices: Tensor
    pools: Tensor | None
    capacities: Tensor
    units: Tensor

    def __init__(
        self, cell: ResidentCell, rounds: int, *, limited: bool = False, fluxes: bool = False, exact: bool = False
    ) -> None:
        super().__init__()
        self.rounds, self.limited, self.fluxes, self.exact = rounds, limited, fluxes, exact
        media, N, M = max(1, len(cell.media)), cell.num_nodes[REACTION], cell.num_nodes[METABOLITE]
        several = (media,) if limited else ()
        self.register_buffer("reactions", torch.zeros(*several, N, 4))
        self.register_buffer("prices", torch.zeros(*several, M))
        self.register_buffer("pools", None)
        if limited:
            self.register_buffer("capacities", torch.zeros(media, N))
            self.register_buffer("units", torch.ones(media))
        self._problems: list[_Problem] = []
        self._known: tuple[Tensor, Tensor] | None = None

    def take(
        self, wild_types: Sequence[WildTypeBalance], capacities: Tensor | None = None, units: Tensor | None = None
    ) -> None:
        """Store the fluxes and prices that the rounds start from.

        Args:
            wild_types: that of each medium, or the only one.
            capacities, units: as for the class.
        """
        columns = [torch.stack([w.flux, w.least, w.largest, w.gain], 1) for w in wild_types]
        self.reactions = torch.stack(columns).view_as(self.reactions).to(self.reactions)
        self.prices = torch.stack([w.prices for w in wild_types]).view_as(self.prices).to(self.prices)
        pools = torch.stack([w.pools for w in wild_types])
        self.make_room(pools=bool((pools[..., 0] >= 0).any()))
        if self.pools is not None:
            self.pools.copy_(pools.view_as(self.pools))
        if capacities is not None and units is not None:
            self.capacities, self.units = capacities.to(self.capacities), units.to(self.units)
        self._problems, self._known = [], None

    def make_room(self, *, pools: bool) -> None:
        """Give pools the size that they have in a checkpoint, if it has any; their values are then loaded."""
        self.pools = _no_pools(self.prices) if pools else None

    @torch.no_grad()
    def forward(self, cell: ResidentCell, genotypes: GenotypeBatch) -> tuple[Tensor, Tensor]:
        """Solve the flux balance of B strains.

        Returns:
            [B, len(PARTS)] growth relative to the wild type's in the model's own medium after each part of the rounds;
            and [B, 2] between which values it is certain to be, infinite where nothing is.

        Raises:
            GenotypeError: strains weaken genes, and the rounds were not made for that.
        """
        found_BC, unit_B1 = self._found(cell, genotypes)
        return found_BC[:, 2 : 2 + len(PARTS)] * unit_B1, found_BC[:, :2] * unit_B1

    @torch.no_grad()
    def changes(self, cell: ResidentCell, genotypes: GenotypeBatch) -> Tensor:
        """Return by how much the fluxes of reactions differ from those of the wild type, [B, M], if ``fluxes``.

        The M reactions are those of the metabolic model, in the order of ``cell.reaction_of``.
        """
        return self._found(cell, genotypes)[0][:, 2 + len(PARTS) :]

    def _found(self, cell: ResidentCell, genotypes: GenotypeBatch) -> tuple[Tensor, Tensor | float]:
        """Return what was found of B strains, and the growth of the wild types in their media, [B, 1].

        The columns are those of `_solve`. What was computed before is looked up.
        """
        if not self.limited:
            genotypes.refuse_strengths("the rounds of this model (`model.flux_rounds`)", TRAIN_ON_STRENGTHS)
        lost_GB, left_GB, limits_GB, medium_B = self._limits(cell, genotypes)
        same = self._problems[0]  # in what does not depend on the medium
        keys_B = (lost_GB * same.bits[:, None]).sum(0)
        if not genotypes.deletes_only:
            assert left_GB is not None
            parts_GB = ((1 - left_GB) * STEPS).round().long() * same.bits[:, None]
            keys_B = parts_GB.sum(0) + (medium_B + 1) * MEDIUM_BITS
        if self._known is None or self._known[1].numel() > MOST_KNOWN:
            self._known = keys_B[:0], self._solve(cell, lost_GB[:, :0], None, keys_B[:0], medium_B[:0])
        new_K, first_K = _first_of_each(keys_B[~torch.isin(keys_B, self._known[0])], keys_B)
        if len(new_K):
            found_KC = self._solve(cell, lost_GB[:, first_K], limits_GB, first_K, medium_B[first_K])
            keys, found = torch.cat([self._known[0], new_K]), torch.cat([self._known[1], found_KC])
            order = keys.argsort()
            self._known = keys[order], found[order]
        keys, found = self._known
        unit_B1 = self.units[medium_B, None] if self.limited else 1.0
        return found[torch.searchsorted(keys, keys_B)], unit_B1

    @torch.no_grad()
    def shares(self, cell: ResidentCell, genotypes: GenotypeBatch) -> GrowthShares:
        r"""Split the growth of B strains, less that of the wild type, over groups of reaction nodes.

        Let :math:`\bar y` be halfway between the prices of the wild type and of the strain, and let fluxes x balance
        every metabolite. Then growth differs by exactly :math:`(c - S^T \bar y)^T (x_i - x_w)`, of which each reaction
        has its term. At the strain's own prices a lost reaction would have the whole of what its flux is worth there.
        At those of the wild type, the reactions that replace this flux at a loss would have it. Halfway, each side gets
        half. What a strain's fluxes leave unbalanced belongs to no reaction.

        Raises:
            GenotypeError: as for ``forward``.
            ValueError: the cell graph has several media.
        """
        if not self.limited:
            genotypes.refuse_strengths("the rounds of this model (`model.flux_rounds`)", TRAIN_ON_STRENGTHS)
        lost_GB, _, limits_GB, _ = self._limits(cell, genotypes)
        [problem] = self._problems
        limits = None if limits_GB is None else limits_GB / problem.scale[:, None]
        states = problem.run(lost_GB, self.rounds, limits)
        shares = []
        for flux_GB, price_MB in states:
            change_GB = flux_GB.double() - problem.flux.double()
            halfway_MB = (price_MB + problem.prices) / 2
            earned_GB = problem.gain.double() - spmm(problem.used, halfway_MB, kernel=problem.kernel).double()
            shares.append(earned_GB * change_GB)
        scale_G1 = problem.scale[:, None]
        return GrowthShares(
            problem.nodes, torch.stack(shares), (problem.flux * scale_G1)[:, 0], states[-1][0] * scale_G1
        )

    def _limits(
        self, cell: ResidentCell, genotypes: GenotypeBatch
    ) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor]:
        """Return what limits the fluxes of strains; the problems are scaled first, where that was not done yet.

        Returns:
            [G, B] which groups are lost; [G, B] strengths of groups and their largest fluxes, None where strains only
            delete; and [B] the medium of each strain.
        """
        device = self.reactions.device
        if not self._problems or self._problems[0].flux.device != device:
            pools = _no_pools(self.prices) if self.pools is None else self.pools
            stored = self.reactions.float(), self.prices.float(), pools.float()
            each = zip(*stored, strict=True) if self.limited else [stored]
            self._problems = [_Problem.of(cell, *wild_type) for wild_type in each]
            if self._known is not None:  # what was found before the model moved to this device
                keys, found = self._known
                self._known = keys.to(device), found.to(device)
        same = self._problems[0]  # in what does not depend on the medium
        lost_GB = blocked_reactions(cell, genotypes)[same.nodes]
        if genotypes.deletes_only:
            return lost_GB, None, None, genotypes.genes.new_zeros(genotypes.num_strains)
        left_GB = same.strongest(strengths(cell, genotypes)[REACTION].float()) * ~lost_GB
        medium_B = _media_of(cell, genotypes)
        capacities_MG = same.of_groups(self.capacities)
        limits_GB = torch.where(left_GB < 1, left_GB * capacities_MG.T[:, medium_B], torch.inf)
        return lost_GB, left_GB, limits_GB, medium_B

    def _solve(
        self, cell: ResidentCell, lost_GK: Tensor, limits_GB: Tensor | None, columns_K: Tensor, medium_K: Tensor
    ) -> Tensor:
        """Solve K strains, the limits of which are in some columns.

        Returns:
            [K, C]: between which values growth is certain to be; growth after each part of the rounds, both relative to
            that in the medium; and changes of fluxes if ``fluxes``.
        """
        M = int(cell.reaction_of.max()) + 1 if self.fluxes else 0
        found_KC = self.reactions.new_zeros(len(columns_K), 2 + len(PARTS) + M)
        for medium, problem in enumerate(self._problems):
            for some in (medium_K == medium).nonzero().squeeze(1).split(STRAINS):
                limits = None if limits_GB is None else limits_GB[:, columns_K[some]] / problem.scale[:, None]
                growth_KP, certain_K2 = problem.solve(lost_GK[:, some], self.rounds, limits)
                if self.exact:
                    unsolved = (certain_K2[:, 0] != certain_K2[:, 1]).nonzero().squeeze(1)
                    at = some[unsolved]
                    limits = None if limits_GB is None else limits_GB[:, columns_K[at]]
                    growth_K1 = self._exactly(cell, problem, medium, lost_GK[:, at], limits).to(growth_KP)[:, None]
                    given_up_K1 = growth_K1.isnan()  # the rounds' growth stays, and stays uncertain
                    growth_KP[unsolved] = growth_KP[unsolved].where(given_up_K1, growth_K1)
                    certain_K2[unsolved] = certain_K2[unsolved].where(given_up_K1, growth_K1)
                changes = [problem.changes(lost_GK[:, some], self.rounds, cell, M, limits)] if self.fluxes else []
                found_KC[some] = torch.cat([certain_K2, growth_KP, *changes], 1)
        return found_KC

    def _exactly(
        self, cell: ResidentCell, problem: _Problem, medium: int, lost_GK: Tensor, limits_GK: Tensor | None
    ) -> Tensor:
        """Return the growth of K strains by linear programs, [K], relative to the wild type's in the medium."""
        reactions = self.reactions[medium] if self.limited else self.reactions
        least_G, largest_G = problem.of_groups(reactions[:, 1:3].T)
        balances = balance_matrix(cell, problem.nodes)
        largest_GK = largest_G[:, None] * ~lost_GK
        if limits_GK is not None:
            largest_GK = largest_GK.minimum(limits_GK)
        gain_G = problem.gain[:, 0].double() / problem.scale.double()
        return exact_growth(balances, gain_G, least_G[:, None].minimum(largest_GK), largest_GK)


def _no_pools(like: Tensor) -> Tensor:
    """Return ``FluxRounds.pools`` of metabolites that belong to none, for a tensor of their prices."""
    return torch.stack([torch.full_like(like, -1), torch.zeros_like(like)], -1)


def _media_of(cell: ResidentCell, genotypes: GenotypeBatch) -> Tensor:
    """Return the medium of each strain by its number among those of the cell graph, [B]; 0 without media.

    It is told by the strengths of the reactions that differ between media.
    """
    own, count = genotypes.reactions, len(cell.media)
    if not count or own is None:
        return genotypes.genes.new_zeros(genotypes.num_strains)
    strengths_BK = own.strengths.view(genotypes.num_strains, -1).to(cell.media_strengths)
    return (strengths_BK[:, None] - cell.media_strengths).abs().amax(2).argmin(1)


def _first_of_each(new_K: Tensor, keys_B: Tensor) -> tuple[Tensor, Tensor]:
    """Return the different keys among ``new_K``, and where each stands first in ``keys_B``."""
    different = new_K.unique()
    first = (keys_B[None] == different[:, None]).int().argmax(1)
    return different, first


@dataclass(frozen=True, eq=False)
class _Problem:
    """Hold the flux balance of the wild type in units in which its fluxes and turnovers are 1.

    G groups of reaction nodes with the same metabolites can carry flux; see ``SteadyState``.

    Attributes:
        nodes: [G] one node of each group.
        belongs: [N] the group of each node, G where it cannot carry flux.
        scale: [G] the flux that is 1 in these units.
        bits: [G] int64 random numbers; the sum over the lost groups identifies a set.
        made: edges from groups to metabolites, and to pools, which come last.
        used: the same edges in the other direction.
        flux, least, largest: [G, 1] flux of the wild type, least and largest flux.
        prices: [M, 1] prices of metabolites and pools in the wild type.
        gain: [G, 1] contribution to growth relative to the wild type's.
        flux_step, price_step: [G, 1] and [M, 1] step sizes τ and σ.
    """

    nodes: Tensor
    belongs: Tensor
    scale: Tensor
    bits: Tensor
    made: ResidentRelation
    used: ResidentRelation
    flux: Tensor
    least: Tensor
    largest: Tensor
    prices: Tensor
    gain: Tensor
    flux_step: Tensor
    price_step: Tensor

    @classmethod
    def of(cls, cell: ResidentCell, reactions_N4: Tensor, prices_M: Tensor, pools_M2: Tensor) -> _Problem:
        """Scale the wild type's problem."""
        steady, converts = cell.steady_state, cell[CONVERTS]
        assert steady is not None
        assert converts.weight is not None
        groups = steady.can_flow.nonzero().squeeze(1)
        G, device = len(groups), groups.device
        position = torch.full((len(steady.size),), G, device=device)
        position[groups] = torch.arange(G, device=device)
        belongs = position[steady.group_of]
        flux, least, largest, gain = torch.zeros(4, G + 1, device=device).index_add_(1, belongs, reactions_N4.T)[:, :G]

        first = torch.full((len(steady.size),), len(belongs), device=device)
        first.scatter_reduce_(0, steady.group_of, torch.arange(len(belongs), device=device), "amin")
        once = (first[steady.group_of[converts.src]] == converts.src) & (belongs[converts.src] < G)
        group, metabolite, amount = belongs[converts.src][once], converts.dst[once], converts.weight[once].float()
        group, metabolite, amount, pools = _with_pools(group, metabolite, amount, pools_M2)
        prices_M = torch.cat([prices_M, prices_M.new_zeros(pools)])
        scale, turnover = _scales(group, metabolite, amount, flux, len(prices_M))
        weight = amount * scale[group] / turnover[metabolite]

        sizes = G, len(prices_M)
        made = ResidentRelation(("group", "makes", METABOLITE), group, metabolite, *sizes, weight)
        used = ResidentRelation((METABOLITE, "is made by", "group"), metabolite, group, *sizes[::-1], weight)
        growth = float(gain @ flux)
        bits = torch.randint(2**62, (G,), generator=torch.Generator().manual_seed(0)).to(device)
        of_group = torch.zeros(G, device=device).index_add_(0, group, weight.abs()).clamp(min=LEAST_SCALE)
        of_metabolite = torch.zeros(sizes[1], device=device).index_add_(0, metabolite, weight.abs())
        return cls(
            first[groups],
            belongs,
            scale,
            bits,
            made,
            used,
            (flux / scale)[:, None],
            (least / scale)[:, None],
            (largest / scale).clamp(max=LARGEST_FLUX)[:, None],
            (prices_M * turnover / growth)[:, None],
            (gain * scale / growth)[:, None],
            PRIMAL_WEIGHT / of_group[:, None],
            1 / PRIMAL_WEIGHT / of_metabolite.clamp(min=LEAST_SCALE)[:, None],
        )

    def strongest(self, left_NB: Tensor) -> Tensor:
        """Return the largest strength among the nodes of each group, [G, B]."""
        found = left_NB.new_zeros(len(self.nodes) + 1, left_NB.shape[1])
        return found.scatter_reduce(0, self.belongs[:, None].expand_as(left_NB), left_NB, "amax")[:-1]

    def of_groups(self, values_MN: Tensor) -> Tensor:
        """Return the sum of values of nodes over each group, [M, G]."""
        total = values_MN.new_zeros(len(values_MN), len(self.nodes) + 1)
        return total.index_add_(1, self.belongs, values_MN)[:, :-1]

    @property
    def kernel(self) -> str:
        """Return the kernel that computes the messages."""
        return "csr" if self.flux.device.type == "cpu" else "auto"

    def changes(
        self, lost_GB: Tensor, rounds: int, cell: ResidentCell, reactions: int, limits_GB: Tensor | None
    ) -> Tensor:
        """Return by how much fluxes of reactions differ from those of the wild type, [B, M], where flux has a cost.

        It is exactly zero for strains that lose nothing and weaken nothing.
        """
        cost = self.scale[:, None] / (self.flux * self.scale[:, None]).sum()
        flux, _ = self.run(lost_GB, rounds, limits_GB, self.gain - PARSIMONY * cost)[-1]
        nodes_G1 = torch.bincount(self.belongs, minlength=len(self.nodes) + 1)[:-1, None]
        differs_GB = lost_GB if limits_GB is None else lost_GB | limits_GB.isfinite()
        change_GB = (flux - self.flux) * self.scale[:, None] / nodes_G1 * differs_GB.any(0)
        change_NB = torch.cat([change_GB, torch.zeros_like(change_GB[:1])])[self.belongs]
        signed_NB = change_NB * cell.reaction_signs[:, None]
        return signed_NB.new_zeros(reactions, signed_NB.shape[1]).index_add_(0, cell.reaction_of, signed_NB).T

    def run(
        self, lost_GB: Tensor, rounds: int, limits_GB: Tensor | None = None, gain: Tensor | None = None
    ) -> list[tuple[Tensor, Tensor]]:
        """Return the fluxes [G, B] and prices [M, B] of strains after each of ``PARTS`` of the rounds.

        Args:
            lost_GB: which groups the strains lose.
            rounds: number of rounds.
            limits_GB: largest fluxes of the strains, beside those of the wild type.
            gain: [G, 1] what a flux of 1 earns; that of the problem where None.
        """
        gain = self.gain if gain is None else gain
        keep = (~lost_GB).float()
        least, largest = self.least * keep, self.largest * keep
        if limits_GB is not None:
            largest = largest.minimum(limits_GB)
            least = least.minimum(largest)
        flux = anchor_flux = (self.flux * keep).clamp(least, largest)
        price = anchor_price = self.prices.expand(-1, lost_GB.shape[1])
        states, since = list[tuple[Tensor, Tensor]](), 0
        marks = [max(1, rounds // part) for part in PARTS]
        kernel = self.kernel
        for number in range(1, rounds + 1):
            earned = gain - spmm(self.used, price, kernel=kernel)
            new_flux = torch.addcmul(flux, self.flux_step, earned).clamp(least, largest)
            reflected = 2 * new_flux - flux
            change = self.price_step * spmm(self.made, reflected, kernel=kernel)
            since += 1
            if number in marks:
                states += [(new_flux, price)] * marks.count(number)
            if since >= max(FIRST_RESTART, RESTART_SHARE * number):
                flux, price, since = new_flux, price + change, 0
                anchor_flux, anchor_price = flux, price
            else:  # Halpern's average of the reflected step and the anchor
                share = since / (since + 1)
                flux = torch.lerp(anchor_flux, reflected, share)
                price = torch.lerp(anchor_price, price + 2 * change, share)
        return states

    def solve(self, lost_GB: Tensor, rounds: int, limits_GB: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return what ``FluxRounds.forward`` returns, for strains that lose groups, and may weaken others.

        Growth is relative to that of the wild type in the same medium.
        """
        states = self.run(lost_GB, rounds, limits_GB)
        growth_BP, last_GB = torch.stack([(self.gain * flux).sum(0) for flux, _ in states], 1), states[-1][0]
        balanced_B = spmm(self.made, last_GB, kernel=self.kernel).abs().amax(0) < TOLERANCE
        solved_B1 = (balanced_B & ((growth_BP[:, -1] - growth_BP[:, -2]).abs() < TOLERANCE))[:, None]
        growth_BP = growth_BP.clamp(0, 1)
        growth_BP = torch.where(solved_B1, growth_BP.round(decimals=DECIMALS), growth_BP)
        last_B1 = growth_BP[:, -1:]
        least_B1 = torch.where(balanced_B[:, None], last_B1 - 10**-DECIMALS, -torch.inf)
        certain_B2 = torch.cat([least_B1, torch.full_like(least_B1, torch.inf)], 1)
        return growth_BP, torch.where(solved_B1, last_B1, certain_B2)


def _with_pools(
    group: Tensor, metabolite: Tensor, amount: Tensor, pools_M2: Tensor
) -> tuple[Tensor, Tensor, Tensor, int]:
    """Add edges from groups to the pools that they change, which are numbered after the metabolites.

    Returns:
        Groups, metabolites or pools, and amounts of all edges; and the number of pools.
    """
    M, pools = len(pools_M2), int(pools_M2[:, 0].max()) + 1
    pool, part = pools_M2[:, 0].long()[metabolite], (amount * pools_M2[:, 1][metabolite]).double()
    member = pool >= 0
    pair, place = torch.stack([group[member], pool[member]]).unique(dim=1, return_inverse=True)
    change, size = torch.zeros(2, pair.shape[1], dtype=torch.float64, device=group.device).index_add_(
        1, place, torch.stack([part[member], part[member].abs()])
    )
    changed = change.abs() > UNCHANGED * size  # most reactions turn members into one another
    return (
        torch.cat([group, pair[0, changed]]),
        torch.cat([metabolite, pair[1, changed] + M]),
        torch.cat([amount, change[changed].float()]),
        pools,
    )


def _scales(
    group: Tensor, metabolite: Tensor, amount: Tensor, flux_G: Tensor, num_metabolites: int
) -> tuple[Tensor, Tensor]:
    """Return the fluxes [G] and the turnovers [M] that are 1 in the problem's units.

    In the wild type all fluxes and turnovers in use then have the size 1, for glucose as for a vitamin. A reaction or
    metabolite that the wild type does not use takes the smallest scale of its neighbours.
    """
    size = amount.abs()
    turnover = torch.zeros(num_metabolites, device=size.device).index_add_(0, metabolite, size * flux_G[group]) / 2
    used, turned = flux_G > 0, turnover > 0
    scale = flux_G.masked_fill(~used, torch.inf)
    around = turnover.masked_fill(~turned, torch.inf)
    for _ in range(SCALE_ROUNDS):
        scale = torch.where(used, scale, scale.scatter_reduce(0, group, around[metabolite] / size, "amin"))
        around = torch.where(turned, around, around.scatter_reduce(0, metabolite, scale[group] * size, "amin"))
    scale = scale.nan_to_num(posinf=LEAST_SCALE).clamp(min=LEAST_SCALE)
    largest = torch.zeros_like(turnover).scatter_reduce(0, metabolite, scale[group] * size, "amax")
    return scale, torch.where(turned, turnover, largest.clamp(min=LEAST_SCALE))
