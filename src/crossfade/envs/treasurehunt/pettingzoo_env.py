"""Treasurehunt as PettingZoo environments, for the libraries that expect one.

    env = parallel_env(height=8, agents=3)    # all agents see the start of the turn and move together
    env = aec_env(height=8, agents=3)         # one agent after the other sees, decides and moves

Both take the settings of `TreasurehuntParams`. With the same seed both begin in the same state, and the same items
appear: episode e after `reset(seed=s)` draws from fold_in(key(s), e). Without any seed the first is drawn at random.
"""

import secrets
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
from jaxtyping import Int8

from ...errors import UsageError
from ...random import random_numpy as random
from ...ranges import Seed, check_value
from .params import ACTIONS, AGENT, EMPTY, WALL, State, TreasurehuntParams
from .treasurehunt_numpy import Treasurehunt

try:
    gymnasium: Any = import_module("gymnasium")
    pettingzoo: Any = import_module("pettingzoo")
except ModuleNotFoundError as error:
    raise UsageError("this environment needs PettingZoo: pip install 'crossfade[pettingzoo]'.") from error

Observation = Int8[np.ndarray, " observation"]


class Episodes:
    """One game, and the numbers by which its episodes go. Agents are called agent_0, agent_1, ..."""

    def __init__(self, params: TreasurehuntParams, render_mode: str | None = None):
        if render_mode not in (None, "ansi"):
            raise UsageError(f"render_mode: expected 'ansi' or None, got {render_mode!r}.")
        self.params, self.game, self.render_mode = params, Treasurehunt(params), render_mode
        self.possible_agents = [f"agent_{number}" for number in range(params.agents)]
        self.agents: list[str] = []
        # Spaces are not shared: each has a generator of its own.
        most = int(params.appearance.max())
        low, high = np.zeros(params.observation_dim, np.int8), np.full(params.observation_dim, most, np.int8)
        box, discrete = gymnasium.spaces.Box, gymnasium.spaces.Discrete
        self.observation_spaces = {agent: box(low, high, dtype=np.int8) for agent in self.possible_agents}
        self.action_spaces = {agent: discrete(len(ACTIONS)) for agent in self.possible_agents}
        self.state_space = box(0, params.pad, params.empty_map.shape, np.int8)
        self._seed: int | None = None
        self._turn = self._episode = 0
        self._state: State | None = None

    def observation_space(self, agent: str) -> Any:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        return self.action_spaces[agent]

    def state(self) -> Int8[np.ndarray, "rows columns"]:
        """The whole map, as codes of cells with the margin of PAD."""
        return self._now.grid.copy()

    def render(self) -> str | None:
        """The map as text, if the mode is `ansi`: `#` walls, the numbers of agents, the initials of items."""
        return None if self.render_mode is None else _text(self.params, self._now)

    def close(self) -> None:
        pass

    def _begin(self, seed: int | None) -> None:
        """A new episode in its first turn; a seed counts episodes from 0 again."""
        if seed is not None:
            check_value("seed", seed, Seed)
        if seed is not None or self._seed is None:
            self._seed, self._episode = secrets.randbits(32) if seed is None else int(seed), 0
        else:
            self._episode += 1
        self._turn, self.agents = 0, self.possible_agents[:]
        self._keys = random.split(random.fold_in(random.key(self._seed), self._episode), 3)
        self._state = self.game.begin(random.uniform(self._keys[0], (self.game.start_numbers,)))
        self._start_turn()

    def _start_turn(self) -> None:
        self._state = self.game.start_turn(self._now, self._draw(1, self.game.turn_numbers))
        self._chance = self._draw(2, self.game.agents)

    def _end_turn(self) -> bool:
        """Goes on to the next turn; whether there is none."""
        self._turn += 1
        if self._turn == self.game.turns:
            return True
        self._start_turn()
        return False

    def _draw(self, use: int, n: int) -> np.ndarray:
        return random.uniform(random.fold_in(self._keys[use], self._turn), (n,))

    @property
    def _now(self) -> State:
        if self._state is None:
            raise UsageError("expected reset() first, got a question about a game that has not begun.")
        return self._state

    def _seen(self, number: int) -> Observation:
        return self.game.observe(self._now, number)

    def _action(self, agent: str, action: Any) -> int:
        if not self.action_spaces[agent].contains(action):
            raise UsageError(f"{agent}: expected an action from 0 to {len(ACTIONS) - 1}, got {action!r}.")
        return int(action)


class ParallelTreasurehunt(Episodes, pettingzoo.ParallelEnv):
    """All agents observe at the start of the turn and move together; see `TreasurehuntParams`."""

    metadata = {"name": "treasurehunt_v0", "render_modes": ["ansi"], "is_parallelizable": True, "render_fps": 4}

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Observation], dict[str, dict[str, Any]]]:
        self._begin(seed)
        return self._observations(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[dict, dict[str, float], dict[str, bool], dict[str, bool], dict]:
        """(observations, rewards, terminations, truncations, infos); an episode is cut off, it never terminates."""
        if set(actions) != set(self.agents) or not actions:
            raise UsageError(
                f"expected an action of each of {self.agents}, got {list(actions)}. After the end: reset()."
            )
        chosen = np.array([self._action(agent, actions[agent]) for agent in self.agents], np.int32)
        order = np.arange(len(self.agents), dtype=np.int32)
        self._state, reward = self.game.move_together(self._now, chosen, order, self._chance)
        ended, acted = self._end_turn(), self.agents
        seen = self._observations()
        self.agents = [] if ended else acted
        each: Callable[[bool], dict[str, bool]] = lambda value: dict.fromkeys(acted, value)
        rewards = dict(zip(acted, reward.tolist(), strict=True))
        return seen, rewards, each(False), each(ended), {agent: {} for agent in acted}

    def _observations(self) -> dict[str, Observation]:
        return {agent: self._seen(number) for number, agent in enumerate(self.agents)}


class SequentialTreasurehunt(Episodes, pettingzoo.AECEnv):
    """One agent after the other observes, decides and moves; see `TreasurehuntParams`."""

    metadata = {"name": "treasurehunt_v0", "render_modes": ["ansi"], "is_parallelizable": False, "render_fps": 4}

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self._begin(seed)
        self.agent_selection = self.agents[0]
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, dict[str, Any]] = {agent: {} for agent in self.agents}

    def observe(self, agent: str) -> Observation:
        return self._seen(self.possible_agents.index(agent))

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        if self.truncations[agent]:
            self._was_dead_step(action)
            return
        number = self.possible_agents.index(agent)
        chosen = np.asarray(self._action(agent, action), np.int32)
        self._state, reward = self.game.move(self._now, number, chosen, self._chance[number])
        self._cumulative_rewards[agent] = 0.0
        self.rewards = dict.fromkeys(self.agents, 0.0) | {agent: float(reward)}
        self._accumulate_rewards()
        last = number == len(self.possible_agents) - 1
        if last and self._end_turn():
            self.truncations = dict.fromkeys(self.agents, True)
        self.agent_selection = self.agents[(number + 1) % len(self.agents)]


def parallel_env(render_mode: str | None = None, **params: Any) -> ParallelTreasurehunt:
    """All agents move together; settings as `TreasurehuntParams` has them."""
    return ParallelTreasurehunt(TreasurehuntParams(**params), render_mode)


def aec_env(render_mode: str | None = None, **params: Any) -> SequentialTreasurehunt:
    """Agents take turns; settings as `TreasurehuntParams` has them."""
    return SequentialTreasurehunt(TreasurehuntParams(**params), render_mode)


def _text(params: TreasurehuntParams, state: State) -> str:
    signs = {EMPTY: ".", WALL: "#"} | {code: item.name[0] for code, item in enumerate(params.table, AGENT + 1)}
    rows = [[signs.get(code, "") for code in row] for row in state.grid.tolist()]
    for number, place in enumerate(state.place.tolist()):
        row, column = divmod(place, params.columns)
        rows[row][column] = str(number % 10)
    margin = params.radius
    return "\n".join("".join(row) for row in rows[margin : params.rows - margin])
