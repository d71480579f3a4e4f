"""PPO of ours on an environment of Brax: all that a user writes."""

from dataclasses import dataclass

from crossfade.algos.ppo.config import ContinuousPPOConfig
from crossfade.envs.brax import BraxParams
from crossfade.registry import System
from crossfade.run.evaluation import Evaluation
from crossfade.systems.ppo_jax import PPOSystem

RECORD = System(
    name="slide",
    help="a point on a line, as Brax has it",
    config=f"{__name__}:SlideConfig",
    torch="",
    jax=f"{__name__}:SlideSystem",
)


@dataclass(frozen=True)
class SlideConfig(ContinuousPPOConfig):
    pass


class SlideSystem(PPOSystem[SlideConfig]):
    def __init__(self, config: SlideConfig):
        super().__init__(config, BraxParams(env="brax_cases:slide", limit=30))

    def evaluate(self, policy, effort=None, buffer=None):
        return Evaluation({})


RECORD_BALANCE = System(
    name="balance",
    help="a cart-pole of MuJoCo Playground",
    config=f"{__name__}:BalanceConfig",
    torch="",
    jax=f"{__name__}:BalanceSystem",
)


@dataclass(frozen=True)
class BalanceConfig(ContinuousPPOConfig):
    pass


class BalanceSystem(PPOSystem[BalanceConfig]):
    def __init__(self, config: BalanceConfig):
        super().__init__(config, BraxParams(env="CartpoleBalance", backend="playground", limit=200))

    def evaluate(self, policy, effort=None, buffer=None):
        return Evaluation({})
