"""The sizes of a game of treasurehunt, as the face of a game asks for them: the same however it is computed."""

from dataclasses import dataclass

from .params import ACTIONS, TreasurehuntParams


@dataclass(frozen=True)
class Sizes:
    """What `envs/game.py` asks of a game, beside its functions."""

    params: TreasurehuntParams

    @property
    def agents(self) -> int:
        return self.params.agents

    @property
    def observation_dim(self) -> int:
        return self.params.observation_dim

    @property
    def n_actions(self) -> int:
        return len(ACTIONS)

    @property
    def turns(self) -> int:
        return self.params.turns

    @property
    def start_numbers(self) -> int:
        return self.params.inner

    @property
    def turn_numbers(self) -> int:
        return self.params.inner
