import torch

from crossfade.optim import eager_torch, functional_torch
from crossfade.trainers.system import PureState, Scheduled

from . import ARMS, FEATURES, Shared


class Bandit(Shared):
    def make_policy(self, parameters):
        policy = torch.nn.Linear(FEATURES, ARMS, dtype=getattr(torch, self.config.dtype))
        policy.load_state_dict({name: torch.tensor(array) for name, array in parameters.items()})
        return policy

    def make_optimizers(self, policy):
        return {"policy": Scheduled(torch.optim.Adam(policy.parameters(), lr=self.config.lr))}

    def logits(self, policy, context):
        return policy(torch.from_numpy(context)).detach().numpy()

    collect_one_by_one = Shared.collect

    def tensors(self, batch):
        return {name: torch.from_numpy(array) for name, array in batch.items()}

    def loss(self, policy, batch):
        log_p = policy(batch["context"]).log_softmax(-1).gather(-1, batch["action"][:, None])[:, 0]
        value = -(batch["reward"] * log_p).mean()
        return value, {"loss": value, "reward": batch["reward"].mean()}

    def update(self, policy, optimizers, batch):
        return eager_torch.update(policy, optimizers["policy"].optimizer, self.loss, batch)

    def learn(self, policy, optimizers, batch, steps):
        return steps["policy"](batch)

    def pure_update(self, policy, compile):
        step = functional_torch.descent(policy, self.optimizer_records(0)["policy"], self.loss)

        def update(state, batch):
            params, moments, info = step(state.params, state.moments["policy"], batch)
            return PureState(params, {"policy": moments}), info

        return compile(update)
