"""PPO of ours on environments of Brax and of MuJoCo Playground: all that a user writes."""

from crossfade.algos.ppo.config import ContinuousPPOConfig
from crossfade.envs.brax import BraxParams
from crossfade.registry import System
from crossfade.run.evaluation import Evaluation
from crossfade.systems.ppo_jax import PPOSystem


def record(name: str, help: str) -> System:
    return System(
        name=name,
        help=help,
        config="crossfade.algos.ppo.config:ContinuousPPOConfig",
        torch="",
        jax=f"{__name__}:{name.capitalize()}",
    )


RECORD = record("slide", "a point on a line, as Brax has it")
RECORD_BALANCE = record("balance", "a cart-pole of MuJoCo Playground")


class OnBrax(PPOSystem[ContinuousPPOConfig]):
    params: BraxParams

    def __init__(self, config: ContinuousPPOConfig):
        super().__init__(config, self.params)

    def evaluate(self, policy, effort=None, buffer=None):
        return Evaluation({})


class Slide(OnBrax):
    params = BraxParams(env="brax_cases:slide", limit=30)


class Balance(OnBrax):
    params = BraxParams(env="CartpoleBalance", backend="playground", limit=200)
