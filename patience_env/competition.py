"""Patience Poker as a contest, for PettingZoo: the same cards are called to every player.

    from patience_env.competition import parallel_env

    env = parallel_env(players=3, deals=6, placement="fixed")

One player calls the cards of a pack, and every player places each card in a tableau of his own before the next is
called. Calling passes to the left after each deal; who has the highest total after the agreed number of deals wins.
The rule sheet `seeds/rules/patience_poker.md` has a section on it.

## Agents
`player_0`, `player_1`, ...: each sits on the left of the one before. All act in every step.

## Action Space
As of `PatiencePoker-v0`: the cell of the own tableau that takes the card.

## Observation Space
A dict of what lies open on the table. The cards to come are hidden, and so is where the others put the present card.

* `observation`: exactly the single environment's observation of the own tableau, so that its policies can play here.
* `action_mask`: int8, shape (actions,). Never all zero before the end: a player who has forfeited a tableau may answer
  what he likes until the next deal.
* `opponents`: int8, shape (players - 1, cells): the card codes of the others' cells, the left neighbour's first.
* `totals`: float32, shape (players,): points of all deals so far, the one in progress included; the own first, then the
  others' in the order of `opponents`.
* `deals_left`: int32, shape (1,): deals to come after the present one.

## Rewards
`reward="score"`: the points of each line when its fifth card is placed, so a player's return is his total.
`reward="win"`: 1 for the winner at the end (shared equally among those that tie), else 0.

An illegal action forfeits the tableau: it scores zero, whatever its lines had made is taken back by a negative reward,
and the player sits out until the next deal. `illegal_action="raise"` makes an error of it instead.

## Episode End
All players are terminated together after the last deal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.utils import seeding
from numpy.typing import NDArray

from patience_env.deals import check_deal
from patience_env.env import PatienceEnv, check_illegal_action, check_render_mode
from patience_env.game import Layout, Spot, Table, get_game
from patience_env.kernels import IDLE, OVER, STEP
from patience_env.table import Rows, draw_deal

try:
    from pettingzoo import AECEnv, ParallelEnv
    from pettingzoo.utils.conversions import parallel_to_aec
except ImportError as error:
    raise ImportError(
        "patience_env.competition needs PettingZoo, which is not installed here: "
        'pip install "patience-env[multiplayer]"'
    ) from error

GAME_ID = "PatiencePoker-v0"
REWARDS = ("score", "win")
APART = 2.0  # columns between two tableaus in a picture
HEAD = 1.7  # rows above them, for the card that is called

Observation = dict[str, NDArray[Any]]
Stepped = tuple[dict[str, Observation], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]


def parallel_env(players: int = 2, deals: int = 4, **options: Any) -> CompetitionEnv:
    """Return the contest as a PettingZoo `ParallelEnv`; the arguments are those of `CompetitionEnv`."""
    return CompetitionEnv(players, deals, **options)


def aec_env(players: int = 2, deals: int = 4, **options: Any) -> AECEnv[str, Observation, int | None]:
    """Return the contest as a PettingZoo `AECEnv`, by PettingZoo's own converter: the players act one after another.

    Nobody sees where the others put the present card before all have placed it. The arguments are those of
    `CompetitionEnv`.
    """
    return parallel_to_aec(CompetitionEnv(players, deals, **options))


class CompetitionEnv(ParallelEnv[str, Observation, int | None]):  # type: ignore[misc]  # PettingZoo has no types
    """A contest at Patience Poker: see the module's documentation.

    Args:
        players: how many players, at least 2.
        deals: the agreed number of deals, at least 1.
        observation: "planes" or "cards", as for `PatienceEnv`.
        reward: "score" or "win".
        illegal_action: "forfeit" (the tableau scores zero; one warning is given) or "raise"
            (`gymnasium.error.InvalidAction`; nothing changes).
        render_mode: None, "ansi" or "rgb_array".
        **options: `placement` and `scoring` of Patience Poker. A scoring table with negative points is allowed only
            together with `illegal_action="raise"`: a forfeited tableau, which scores zero, could be worth more than a
            finished one.

    `infos` hold, for each player, `deal` (the deal number, np.uint64), `deal_index` (from 0), `caller` (who calls),
    `score` (points of the tableau in progress), `total` (points of all deals so far), `forfeited` (whether he sits
    out); after an illegal action `illegal_action`; after a deal's last card `deal_score` (what the tableau scored; the
    other facts are the next deal's already); at the end `won`.

    Raises:
        TypeError: an unknown option.
        ValueError: a value that is not allowed.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012
        "name": "patience_poker_competition_v0",
        "render_modes": ["ansi", "rgb_array"],
        "render_fps": 4,
        "is_parallelizable": True,
    }

    def __init__(
        self,
        players: int = 2,
        deals: int = 4,
        *,
        observation: str = "planes",
        reward: str = "score",
        illegal_action: Literal["forfeit", "raise"] = "forfeit",
        render_mode: str | None = None,
        **options: Any,
    ) -> None:
        count = _at_least("players", players, 2)
        self.deals = _at_least("deals", deals, 1)
        if reward not in REWARDS:
            raise ValueError(f"reward={reward!r} is not allowed: choose one of {', '.join(map(repr, REWARDS))}")
        check_render_mode(render_mode, self.metadata["render_modes"])
        self.reward = reward
        self.illegal_action = check_illegal_action(illegal_action)
        self.render_mode = render_mode
        game = get_game(GAME_ID)
        self.options = game.check_options(options)
        if self.options["target"] is not None:
            raise ValueError("target makes a series of one player; a competition goes over a number of deals")
        self._rows = Rows(game, self.options, count, observation, False)
        may_lose = self.options["scoring"] == "random" or bool((self._rows.states["points"] < 0).any())
        if may_lose and illegal_action == "forfeit":
            raise ValueError(
                "under a scoring table with negative points a forfeited tableau, which scores zero, could be worth "
                "more than a finished one: give illegal_action='raise' with it"
            )
        self.possible_agents = [f"player_{i}" for i in range(count)]
        self.agents: list[str] = []
        rows, columns = self._rows.layout.grid or (0, 0)
        self._cells = rows * columns
        self._seats = {agent: i for i, agent in enumerate(self.possible_agents)}
        self._action_spaces = {agent: spaces.Discrete(self._rows.layout.actions) for agent in self.possible_agents}
        self._observation_spaces = {agent: self._observation_space() for agent in self.possible_agents}
        self._rng: np.random.Generator | None = None
        self._numbers = np.zeros(self.deals, np.uint64)
        self._index = 0
        self._banked = np.zeros(count)
        self._forfeited = np.zeros(count, np.bool_)
        self._started = False
        self._warned = False
        self._picture = _picture_layout(self._rows.layout, self.possible_agents)

    def _observation_space(self) -> spaces.Dict:
        count, actions = len(self.possible_agents), self._rows.layout.actions
        return spaces.Dict(
            {
                "observation": self._rows.observation_space,
                "action_mask": spaces.Box(0, 1, (actions,), np.int8),
                "opponents": spaces.Box(0, 52, (count - 1, self._cells), np.int8),
                "totals": spaces.Box(-np.inf, np.inf, (count,), np.float32),
                "deals_left": spaces.Box(0, self.deals - 1, (1,), np.int32),
            }
        )

    def observation_space(self, agent: str) -> Any:
        """Return the observation space of a player, always the same object."""
        return self._observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        """Return the action space of a player, always the same object."""
        return self._action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Observation], dict[str, dict[str, Any]]]:
        """Start a contest: its deals are drawn from the seed, or given as `options={"deals": [number, ...]}`.

        Other options are passed over with a warning (PettingZoo's tests give one).

        Raises:
            TypeError, ValueError: wrong deal numbers, or not as many as agreed; nothing changes.
        """
        numbers = self._numbers_of(options)
        if seed is not None or self._rng is None:
            self._rng, _ = seeding.np_random(seed)
        drawn = [draw_deal(self._rng) for _ in range(self.deals)] if numbers is None else numbers
        self._numbers = np.array(drawn, np.uint64)
        self._banked[:] = 0.0
        self._started = True
        self.agents = list(self.possible_agents)
        self._deal_out(0)
        return self._observations(), self._infos()

    def _numbers_of(self, options: Mapping[str, Any] | None) -> list[int] | None:
        given = dict(options or {})
        numbers = given.pop("deals", None)
        if given:
            gymnasium.logger.warn(f"reset passes over the options {', '.join(map(repr, given))}: it takes 'deals'")
        if numbers is None:
            return None
        if isinstance(numbers, str) or not hasattr(numbers, "__len__"):
            raise TypeError(f"the option 'deals' is a list of deal numbers, not {numbers!r}")
        if len(numbers) != self.deals:
            raise ValueError(f"this competition goes over {self.deals} deals: {len(numbers)} deal numbers are given")
        return [check_deal(number) for number in numbers]

    def _deal_out(self, index: int) -> None:
        self._index = index
        self._forfeited[:] = False
        self._rows.reset(self._rows.all_rows, np.full(len(self.possible_agents), self._numbers[index]))

    def step(self, actions: Mapping[str, int | None]) -> Stepped:
        """Let every player place the card that was called.

        Args:
            actions: one for each player; that of a player who sits out is passed over.

        Raises:
            ResetNeeded: no contest is in progress.
            ValueError: a player's action is missing, or somebody else's is given.
            TypeError: an action is no whole number.
            InvalidAction: one is not legal and `illegal_action` is "raise"; nothing changes.
        """
        if not self.agents:
            raise ResetNeeded("no contest is in progress: call reset() before step()")
        chosen, legal = self._read(actions)
        failing = ~legal & ~self._forfeited
        rows = self._rows
        taken_back = np.where(failing, rows.states["score"], 0.0)
        self._forfeited |= failing
        modes = np.where(self._forfeited, np.uint8(IDLE), np.uint8(STEP))
        rows.advance(modes, np.zeros(len(modes), np.uint64), chosen)
        points = rows.rewards - taken_back
        for i in np.flatnonzero(failing):
            self._warn(self.possible_agents[i])
        more: dict[str, Any] = {}
        if (self._forfeited | ((rows.status & OVER) != 0)).all():
            more["deal_score"] = self._tableau_points()
            self._banked += more["deal_score"]
            if self._index + 1 < self.deals:
                self._deal_out(self._index + 1)
            else:
                # From here on `_totals` counts the last tableaus in `_banked` alone.
                self.agents = []
        if failing.any():
            more["illegal_action"] = failing
        ended = not self.agents
        won = self._leading() if ended else np.zeros(len(points), np.bool_)
        if ended:
            more["won"] = won
        rewards = points if self.reward == "score" else won / max(int(won.sum()), 1)
        everybody = self.possible_agents
        return (
            self._observations(),
            {agent: float(reward) for agent, reward in zip(everybody, rewards, strict=True)},
            dict.fromkeys(everybody, ended),
            dict.fromkeys(everybody, False),
            self._infos(**more),
        )

    def _read(self, actions: Mapping[str, int | None]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the actions in the order of the players, and which are legal."""
        for agent in self.agents:
            if agent not in actions:
                raise ValueError(f"the action of {agent} is missing: all players act in every step")
        for agent in actions:
            if agent not in self._seats:
                raise ValueError(f"there is no player {agent!r}: the players are {', '.join(self.agents)}")
        chosen = np.full(len(self.agents), -1, np.int64)
        legal = np.zeros(len(self.agents), np.bool_)
        for i, agent in enumerate(self.agents):
            if self._forfeited[i]:
                continue
            chosen[i] = self._whole_number(agent, actions[agent])
            mask = self._rows.masks[i]
            legal[i] = 0 <= chosen[i] < len(mask) and mask[chosen[i]] != 0
            if not legal[i] and self.illegal_action == "raise":
                raise InvalidAction(self._explain(agent, int(chosen[i])))
        return chosen, legal

    def _whole_number(self, agent: str, action: Any) -> int:
        if isinstance(action, np.ndarray) and action.size == 1:
            action = action.reshape(-1)[0]
        if isinstance(action, (bool, np.bool_)) or not isinstance(action, (int, np.integer)):
            last = self._rows.layout.actions - 1
            raise TypeError(f"the action of {agent} is a whole number from 0 to {last}, not {action!r}")
        # What is far outside needs no more than to be outside.
        return int(action) if -1 <= action < self._rows.layout.actions else -1

    def _explain(self, agent: str, action: int) -> str:
        i = self._seats[agent]
        what = "it lies outside the action space"
        if action >= 0:
            what = f"it would {self._rows.game.describe(self._rows.states[i], action)}"
        return f"the action of {agent} is not legal: {what}. Choose among the legal ones: its 'action_mask'"

    def _warn(self, agent: str) -> None:
        if not self._warned:
            gymnasium.logger.warn(
                f"an illegal action of {agent} forfeited the tableau, which scores zero. Choose among the legal ones: "
                "the observation's 'action_mask'. illegal_action='raise' makes an error of it."
            )
            self._warned = True

    # -- what the players see ------------------------------------------------------------------------------------

    def _tableau_points(self) -> NDArray[np.float64]:
        return np.where(self._forfeited, 0.0, self._rows.states["score"])

    def _totals(self) -> NDArray[np.float64]:
        return self._banked + self._tableau_points() if self.agents else self._banked.copy()

    def _leading(self) -> NDArray[np.bool_]:
        totals = self._totals()
        return np.asarray(totals == totals.max())

    def totals(self) -> dict[str, float]:
        """Return the points of each player so far, the deal in progress included."""
        return dict(zip(self.possible_agents, self._totals().tolist(), strict=True))

    def winners(self) -> list[str]:
        """Return the players with the highest total so far: several where they tie."""
        leading = self._leading()
        return [agent for i, agent in enumerate(self.possible_agents) if leading[i]]

    def caller(self) -> str:
        """Return who calls the cards of the present deal."""
        return self.possible_agents[self._index % len(self.possible_agents)]

    def _observations(self) -> dict[str, Observation]:
        rows = self._rows
        cells = np.asarray(rows.states["cells"][:, : self._cells])
        totals = self._totals().astype(np.float32)
        left = np.array([self.deals - 1 - self._index], np.int32)
        found = {}
        for i, agent in enumerate(self.possible_agents):
            mask = rows.masks[i].copy()
            if self.agents and self._forfeited[i]:
                mask[:] = 1
            found[agent] = {
                "observation": rows.observations[i].copy(),
                "action_mask": mask,
                "opponents": np.concatenate((cells[i + 1 :], cells[:i])),
                "totals": np.roll(totals, -i),
                "deals_left": left.copy(),
            }
        return found

    def _infos(self, **more: NDArray[Any]) -> dict[str, dict[str, Any]]:
        score, totals = self._tableau_points(), self._totals()
        infos: dict[str, dict[str, Any]] = {}
        for i, agent in enumerate(self.possible_agents):
            infos[agent] = {
                "deal": self._numbers[self._index],
                "deal_index": self._index,
                "caller": self.caller(),
                "score": float(score[i]),
                "total": float(totals[i]),
                "forfeited": bool(self._forfeited[i]),
                **{name: values[i].item() for name, values in more.items()},
            }
        return infos

    def seat(self, agent: str) -> PatienceEnv:
        """Return a single environment in the position of a player's tableau: a copy, its hidden cards included.

        `policy.choose(env.seat(agent))` lets one of this package's policies play (it sees only what a player sees).

        Raises:
            ResetNeeded: no contest is in progress.
            ValueError: no such player, or he sits out.
        """
        if not self.agents:
            raise ResetNeeded("no contest is in progress: call reset() before seat()")
        if agent not in self._seats:
            raise ValueError(f"there is no player {agent!r}: the players are {', '.join(self.agents)}")
        if self._forfeited[self._seats[agent]]:
            raise ValueError(f"{agent} has forfeited the tableau and sits out until the next deal")
        place = PatienceEnv(self._rows.game, observation=self._rows.observation, illegal_action="raise", **self.options)
        place._rows.states[0] = self._rows.states[self._seats[agent]]
        place._set_deal(None)
        place._refresh()
        return place

    # -- pictures ------------------------------------------------------------------------------------------------

    def render(self) -> Any:
        """Draw all tableaus side by side: a string ("ansi") or a uint8 array (height, width, 3) ("rgb_array").

        Raises:
            ResetNeeded: nothing is dealt yet.
            ImportError: "rgb_array" needs pygame-ce, which is missing.
        """
        if self.render_mode is None:
            gymnasium.logger.warn('You are calling render() without a render mode: give render_mode="rgb_array"')
            return None
        if not self._started:
            raise ResetNeeded("there is no position yet: call reset() before render()")
        from patience_env import render

        draw: Any = getattr(render, self.render_mode)
        return draw(self._picture, self._table(), self._caption(), lit=self._lit(), notes=self._notes())

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def _table(self) -> Table:
        piles: Table = {}
        for i in range(len(self.possible_agents)):
            table = self._rows.game.table(self._rows.states[i])
            # Whoever has forfeited no longer holds the card that is called.
            if i == 0 or not self._forfeited[i]:
                piles |= {name: table[name] for name in ("hand", "stock")}
            piles |= {f"{i} {name}": cards for name, cards in table.items() if name not in ("hand", "stock")}
        return piles

    def _lit(self) -> list[str]:
        places = self._rows.layout.places
        return [f"{i} {places[cell]}" for i, cell in np.argwhere(self._rows.masks) if not self._forfeited[i]]

    def _caption(self) -> str:
        where = f"deal {self._index + 1} of {self.deals}"
        if not self.agents:
            return f"Patience Poker, {where}: {' and '.join(self.winners())} won"
        return f"Patience Poker, {where}: {self.caller()} calls"

    def _notes(self) -> list[Any]:
        from patience_env.render import Note

        side = (self._rows.layout.grid or (0, 0))[1]
        points, totals = self._tableau_points(), self._totals()
        notes = []
        for i, agent in enumerate(self.possible_agents):
            score = "out" if self._forfeited[i] else f"{points[i]:+g}"
            x = i * (side + APART) + (side / 2 if self.render_mode == "rgb_array" else 0.0)
            notes.append(Note(x, HEAD - 0.25, f"{agent} {totals[i]:g} ({score})"))
        return notes


def _at_least(name: str, value: Any, least: int) -> int:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"{name}={value!r} is not allowed: give a whole number of at least {least}")
    return int(value)


def _picture_layout(layout: Layout, agents: list[str]) -> Layout:
    """Return where everything is drawn: the card that is called on top, below it the tableaus from left to right."""
    side = (layout.grid or (0, 0))[1]
    spots = {"hand": Spot(0.0, 0.0, label="called"), "stock": Spot(2.0, 0.0, 0.01, 0.01, label="stock")}
    for i in range(len(agents)):
        for name in layout.places[: side * side]:
            spot = layout.spots[name]
            spots[f"{i} {name}"] = Spot(spot.x + i * (side + APART), spot.y + HEAD)
    return Layout(1, (), (), None, spots)
