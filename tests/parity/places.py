"""Where each planted bug is, for `bisect` to find: pieces of the right line of either half, and kinds of right causes.

A line is right when it holds one of the pieces. Several kinds are right where one change can be said in several ways: a
subtraction for an addition is also an operand of the other sign. A bug that is not listed counts as not found.
"""

from typing import NamedTuple


class Right(NamedTuple):
    """Pieces of right lines, and kinds of right causes."""

    lines: tuple[str, ...]
    kinds: tuple[str, ...]


def right(lines: str, kinds: str) -> Right:
    """Pieces are separated by a bar, kinds by a comma."""
    return Right(tuple(part.strip() for part in lines.split("|")), tuple(part.strip() for part in kinds.split(",")))


NETS = {
    "GELU by its tanh approximation": right("F.gelu( | jax.nn.gelu", "gelu"),
    "LayerNorm eps 1e-6": right("self.norm( | jnp.sqrt(var + eps)", "eps"),
    "LayerNorm after the activation": right("self.norm( | layer_norm(", "order"),
    "square kernel not transposed": right('self.fc1(x) | x @ p["fc1"]["weight"]', "transposed"),
    "layers of equal shape swapped": right("self.fc1(x) | linear(p[first]", "exchanged"),
    "float32 leak": right("self.fc2(h) | astype(jnp.float32)", "cast"),
    "float32 result": right("self.out( | y.astype(jnp.float32)", "cast"),
    "activation forgotten": right("torch.tanh(", "left out, operand"),
    "LayerNorm variance with ddof 1": right("self.norm( | ddof=1 | deviation", "ddof"),
    "SAME padding with stride 2": right("self.conv(x) | conv_general_dilated", "padding"),
    "GroupNorm eps 1e-6": right("self.norm(self.conv | + eps)", "eps"),
    "max-pool SAME padding": right("F.max_pool2d | reduce_window", "padding"),
    "flatten in NHWC order": right(".flatten(1) | h.reshape(h.shape[0], -1)", "layout"),
    "GroupNorm groups interleaved": right("self.norm(self.conv | groups", "layout, axis"),
    "LSTM gates in the order i, g, f, o": right("self.lstm( | jax.nn.sigmoid(f)", "order"),
    "LSTM carry as (c, h)": right("self.lstm(", "order"),
    "GRU reset before the product": right("self.gru( | n = jnp.tanh(n_x + n_h)", "order"),
    "GRU update inverted": right("self.gru( | z * n + (1 - z) * h", "sign"),
    "noise of a noisy layer transposed": right("torch.outer( | outer.T", "transposed"),
    "square root of the noise forgotten": right(
        "e.abs().sqrt() | jnp.sqrt(jnp.abs(e))", "left out, function, operation"
    ),
    "embedding index one too low": right('self.embed(index) | p["embed"]["weight"][index]', "index"),
    "a bias left out of the mapping": right("", ""),
    "two leaves taken for one tensor": right("", ""),
    "equal shapes exchanged in the mapping": right("self.fc1(x)", "exchanged"),
    "features reversed on the way": right("self.norm( | layer_norm", "order"),
}

HIDDEN = {
    "relu6 for relu": right("F.relu(z) | jax.nn.relu6", "activation, clamp"),
    "celu for elu": right("F.elu( | jax.nn.celu", "activation"),
    "elu with alpha 1": right("F.elu( | jax.nn.elu(before)", "activation, factor, constant"),
    "clamp at -5 for -20": right(".clamp(-20.0, 2.0) | jnp.clip(", "clamp"),
    "upper bound of the clamp forgotten": right(".clamp(-20.0, 2.0) | jnp.clip(", "clamp"),
    "absolute value of the scale": right("self.norm(h) | jnp.abs(p[", "abs"),
    "normaliser missing": right("self.mean) / | x = x / np.sqrt", "operand, left out, sign, order, constant"),
    "normaliser without its epsilon": right("self.var + 1e-5 | jnp.sqrt(p[", "eps"),
    "leaky slope 0.2": right("F.leaky_relu( | slope * z", "activation"),
    "leaky relu forgotten": right("F.leaky_relu(", "activation, left out"),
    "mse for huber where errors are small": right("F.huber_loss | jnp.square(error) / 2", "loss"),
    "ratio not clipped": right(".clamp(0.5, 2.0) | jnp.exp(value", "clamp, left out"),
    "target not clipped from below": right("torch.maximum( | bounded = value", "left out, operation"),
    "scale of a small output beside one of 1e12": right("torch.stack | factor * h[:, 1]", "factor, constant, operand"),
}

LOSSES = {
    "advantage normalised with ddof 0": right("advantage.std() | .std(ddof", "ddof"),
    "entropy with the wrong sign": right("- 0.01 * entropy | - 0.01 * bonus", "sign, operation"),
    "sum for mean": right(".square().mean() | reduce(jnp.square", "reduction"),
    "value target and advantage exchanged": right('value - advantage - b["value"] | value - target', "operand"),
    "ratio of the wrong sign": right("torch.exp( | jnp.exp(-log_ratio", "sign"),
    "returns bootstrapped from the wrong step": right("torch.cat([b | last = b", "index, order, operand"),
    "info key renamed": right("policy.entropy() | entropy =", "missing"),
    "clamp halves the gradient at its bound": right(".clamp(-2.0, 0.25)", "kink"),
    "ratio detached": right("ratio = torch.exp | stop_gradient(ratio)", "detach"),
    "value trunk detached": right("net.value( | stop_gradient(value)", "detach"),
    "tanh log-determinant missing": right("F.softplus( | factor *", "constant, left out, factor"),
    "log-determinant without its factor 2": right("F.softplus( | factor *", "factor, constant, left out"),
    "temperature on the wrong term": right("0.2 * log_prob.sum(-1) - q | log_prob - 0.2 * q", "factor"),
    "sample for rsample": right("u = mean + std | stop_gradient(u)", "detach"),
    "log-probability detached": right("log_prob.sum(-1) - q | log_prob = | stop_gradient(log_prob)", "detach"),
    "terminal mask inverted": right('(1 - b["terminal"]) | mask = b["terminal"]', "mask, left out"),
    "truncation not bootstrapped": right('(1 - b["terminal"]) | mask * (1 - b["truncated"])', "operand"),
    "l2 loss with its half": right("(chosen - backup).square().mean() | half *", "factor"),
    "mse for huber": right("F.huber_loss(chosen | single", "loss"),
    "gather along the wrong axis": right("q.gather(1 | q[b[", "axis"),
    "max over the batch": right(".max(1).values | .max(", "axis"),
    "expectile weights exchanged": right("torch.where(error > 0 | jnp.where(error > 0", "mask, comparison, order"),
    "quantile axis exchanged": right("taus[None, :, None] | jnp.abs(taus", "axis"),
    "discount squared": right("0.9 * (1 - | discount * mask", "constant, factor"),
    "missing stop_gradient on the target": right("backup = b", "detach"),
    "gradient of abs at zero": right("net.zeros.abs()", "kink"),
    "gradient of the norm at zero": right("net.zeros.norm()", "kink"),
    "gradient of a tied maximum": right("net.zeros[None].max(1)", "kink"),
}

UPDATES = {
    "idle parameters skipped by torch": right("AdamW(p, lr=LR)", "idle"),
    "optimiser state made anew": right("AdamW(p, lr=LR) | after = jax.tree.map", "state"),
    "idle parameters decayed": right("AdamW(p, lr=LR)", "idle"),
    "EMA from the weights before the update": right("slow.lerp_(fast | incremental_update", "operand"),
    "EMA with tau and 1 - tau exchanged": right("slow.lerp_(fast | incremental_update", "momentum"),
    "target never moved": right("slow.lerp_(fast | incremental_update", "left out, momentum"),
    "BatchNorm momentum of the other convention": right("F.batch_norm( | keep *", "momentum"),
    "BatchNorm running variance biased": right("F.batch_norm( | unbiased", "ddof"),
    "minibatches in another order": right('for rows in b["order"] | order = b["order"]', "order"),
    "metrics of the wrong minibatch": right('{"loss": loss} | losses[0 | F.mse_loss', "returned"),
    "BatchNorm by its running statistics": right("F.batch_norm( | (h - mean[None])", "statistics"),
    "Adam with decay for AdamW": right("AdamW(p, lr=LR)", "weight decay"),
    "AdamW with optax's default decay": right("AdamW(p, lr=LR)", "weight decay"),
    "frozen parameters decayed": right("AdamW(p, lr=LR)", "frozen"),
    "AdamW for Adam with decay": right("Adam(p, lr=LR", "weight decay"),
    "Adam eps left at its default": right("Adam(p, lr=LR", "eps"),
    "first moment's decay taken for the second": right("Adam(p, lr=LR", "momentum"),
    "biases decayed as well": right("decayed_by_shape | AdamW(", "groups"),
    "RMSprop eps inside the root": right("RMSprop(p", "eps"),
    "RMSprop decay left at 0.9": right("RMSprop(p", "momentum"),
    "Adagrad with optax's accumulator": right("Adagrad(p", "accumulator"),
    "clipping without torch's epsilon": right("SGD(p", "clipping"),
    "clipping each tensor by itself": right("SGD(p", "clipping"),
    "Nesterov forgotten": right("SGD(p", "flag"),
    "cosine schedule flat after its end": right("SGD(p", "lr"),
    "schedule counted from one": right("SGD(p", "lr"),
    "learning rate inside RMSprop's momentum": right("RMSprop(p", "momentum"),
}

WORLDS = {
    "reset from a split of the key": right("random.numpy.randint | jax.random.randint", "key"),
    "time counted from one": right('"time": np.int64(0) | time = jnp.asarray(self.bug', "constant"),
    "border one cell too far": right("np.clip( | jnp.clip(", "clamp, constant, operation"),
    "board without borders": right("np.clip( | moved % SIZE", "operation"),
    "cost with the wrong sign": right("-0.1 * float | cost", "sign"),
    "done one step late": right("time >= LIMIT | late >= LIMIT", "mask, comparison, constant"),
    "goal does not end the episode": right("goal or bool | ends = goal", "mask, operation"),
    "key used again at every step": right("random.split(key, 3) | jax.random.split(key, 3) | sampled =", "key"),
    "halves of the split exchanged": right("random.split(key, 3) | random.categorical | key, draw = draw, key", "key"),
    "greedy action for a sampled one": right("random.categorical(draw | logits.argmax()", "operand"),
    "log-probability of the greedy action": right("logits[action] | logits.max()", "operand"),
    "observation after the reset for the last one": right('state["position"] | seen =', "operand"),
}

IQN = {
    "cosines counted from zero": right("multiples).cos() | jnp.cos(jnp.pi | multiples =", "constant, operand, index"),
    "dueling mean over the fractions": right("advantage.mean(-1 | advantage.mean(1", "axis"),
    "noise of the weight for the bias too": right("noise.split | own[0].reshape(-1)", "index, operand"),
    "noise in the wrong order of layers": right("noise.split | numbers(layers[::-1]", "order, operand"),
    "indicator of errors above zero": right("(u < 0) | huber(u, 1 - tau", "mask, comparison, sign"),
    "not divided by kappa": right("quantile_huber( | / kappa | kappa * huber", "factor"),
    "fractions along the targets": right("fractions[:, :, None] | huber(u.mT | where(size", "transposed, axis"),
    "sum over the fractions for the mean": right("quantile_huber( | .mean((1, 2))", "factor, reduction"),
    "discount forgotten": right("batch.discount | jnp.sign(t.discount | part[agent]", "constant"),
    "next value where there is none": right("batch.discount | part[agent]", "mask"),
    "transitions that do not count are counted": right("batch.valid", "left out"),
    "noise scales held fixed": right("sigma_", "detach"),
}

OFFLINE = {
    "F24 norm before the activation": right("F.layer_norm( | F.gelu(", "order"),
    "F24 epsilon 1e-5": right("F.layer_norm( | + modules.EPS", "eps"),
    "F24 exact gelu": right("F24 exact gelu | F.gelu( | jax.nn.gelu(", "gelu"),
    "F26 standard deviation e": right("found.log_std + 1 | jnp.zeros_like(mean)", "left out, constant"),
    "F27 encoder with an active last layer": right("F.gelu(right", "left out"),
    "F23 observations encoded twice": right("value.encoder(observations) | torch.cat(present", "operand, left out"),
    "F28 flattened by channels": right(".flatten(1)", "layout"),
    "F28 pooled with equal padding": right("F.max_pool2d | reduce_window", "padding"),
    "F28 images not permuted": right("x.reshape(len(x)", "layout"),
    "F29 relu for swish": right("F.silu( | jax.nn.silu", "activation"),
    "F29 norm over the batch": right("F.batch_norm( | self.stem_norm", "axis"),
    "F07 two samples for the two members": right("torch.minimum(values[:, 0] | values.min(0)", "transposed, axis"),
    "F12 pairs on the diagonal alone": right("m.diagonal()", "operand"),
    "F13 expectile of the members' mean": right("u.mean(0) | expectile_loss(", "reduction, operand"),
    "F14 errors of members summed": right("2 * value", "factor, left out"),
    "F14 errors of members summed, in MBPO": right("2 * value", "factor, left out"),
    "F14 errors of members summed, in DINO": right("2 * value", "factor, left out"),
    "F15 penalty without noise": right("mode - batch.next_actions | penalty =", "operand"),
    "F18 samples without a gradient": right("latents.detach()", "detach"),
    "F19 values without a gradient": right("module(*given).detach()", "detach"),
    "F20 actions without a gradient": right("right(*given).detach()", "detach"),
    "F21 the actor teaches the critic, in CRL": right("critic", "detach"),
    "F21 the actor teaches the critic, in TD": right("critic", "detach"),
    "F21 the actor teaches the critic, in IQL": right('modules["critic"]', "detach"),
    "F21 the actor teaches the critic, in DINO": right('modules["critic"]', "detach"),
    "F21 the actor teaches the critic, in MBPO": right('modules["critic"]', "detach"),
    "F22 fine-tuning teaches the encoder": right('policy["encoder"](batch.observations) | stop_gradient(', "detach"),
    "F23 rewards teach the encoder": right("critic_vf_encoder | stop_gradient(", "detach"),
    "F30 idle modules skipped": right("def _adam | optimizer.step()", "idle"),
    "F37 actions drawn at random": right("log_std.exp() * noise | torch.full_like", "operand, left out, mask"),
}

PLACES: dict[str, Right] = NETS | HIDDEN | LOSSES | UPDATES | WORLDS | IQN | OFFLINE

NOT_LOCATED = {
    "normaliser missing",
    "time counted from one",
    "key used again at every step",
    "halves of the split exchanged",
    "greedy action for a sampled one",
    "log-probability of the greedy action",
    "observation after the reset for the last one",
    "F12 pairs on the diagonal alone",
    "F20 actions without a gradient",
    "F28 images not permuted",
    "F29 norm over the batch",
}
"""What `bisect` does not find yet."""
NOT_EXPLAINED = {
    "relu6 for relu",
    "target not clipped from below",
    "scale of a small output beside one of 1e12",
    "dueling mean over the fractions",
    "noise of the weight for the bias too",
    "noise in the wrong order of layers",
    "next value where there is none",
    "noise scales held fixed",
    "F24 norm before the activation",
}
"""What it finds without the right cause."""
