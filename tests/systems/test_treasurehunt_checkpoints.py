"""Files of the published system become ours, compute the same in torch and in JAX, and turn back bit for bit."""

import json
import math
import pickle

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn

from crossfade import checkpoint, config as settings
from crossfade.algos.iqn import networks_jax, networks_torch
from crossfade.algos.iqn.architecture import architecture
from crossfade.cli import main
from crossfade.errors import CheckpointError, NoCounterpart, UsageError
from crossfade.registry import find
from crossfade.systems.treasurehunt.config import TreasurehuntConfig
from crossfade.systems.treasurehunt.published.checkpoints_torch import find_files, read_agents, write_agents
from crossfade.trainers.making import make_trainer, precision
from crossfade.trainers.system import Snapshot

WORDS = [
    *("env.height=5", "env.width=5", "env.agents=2", "env.radius=1", "env.turns=6", "env.items=gem:10:0.2"),
    *("memory=24", "batch_size=4", "frames=2", "quantiles=3", "acting_quantiles=2", "hidden=7", "sync=100", "lr=0.01"),
    *("eval_episodes=2", "steps=4", "chunk=4", "epsilon=0.5"),
]
CONFIG = settings.apply(TreasurehuntConfig(), WORDS)
INPUTS, ACTIONS, HIDDEN = 2 * CONFIG.env.observation_dim, 4, 7


class Noisy(nn.Linear):
    """A linear layer with a scale of noise for each weight, and the noise itself as buffers."""

    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.sigma_weight = nn.Parameter(torch.full_like(self.weight, 0.017))
        self.register_buffer("epsilon_weight", torch.zeros(outputs, inputs))
        self.sigma_bias = nn.Parameter(torch.full_like(self.bias, 0.017))
        self.register_buffer("epsilon_bias", torch.zeros(outputs))

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        weight = self.weight + self.sigma_weight * self.epsilon_weight.normal_()
        return nn.functional.linear(x, weight, self.bias + self.sigma_bias * self.epsilon_bias.normal_())


class Net(nn.Module):
    """The published network: quantiles at drawn fractions."""

    def __init__(self, inputs=INPUTS, actions=ACTIONS, hidden=HIDDEN):
        super().__init__()
        self.head1 = nn.Linear(inputs, hidden)
        self.cos_embedding = nn.Linear(64, hidden)
        self.ff_1 = Noisy(hidden, hidden)
        self.advantage = Noisy(hidden, actions)
        self.value = Noisy(hidden, 1)

    def forward(self, x, fractions):
        waves = torch.cos(fractions[..., None] * math.pi * torch.arange(1, 65))
        z = self.head1(x).relu()[:, None] * self.cos_embedding(waves).relu()
        z = self.ff_1(z).relu()
        advantage = self.advantage(z)
        return self.value(z) + advantage - advantage.mean(-1, keepdim=True)


class Agent:
    """Two networks and an optimiser over the first, as one agent of the published system has them."""

    def __init__(self, seed=0, updates=3, lr=0.01, **sizes):
        torch.manual_seed(seed)
        self.nets = {"local": Net(**sizes), "target": Net(**sizes)}
        self.adam = torch.optim.Adam(self.nets["local"].parameters(), lr=lr)
        for _ in range(updates):
            self.adam.zero_grad()
            width = self.nets["local"].head1.in_features
            self.nets["local"](torch.randn(5, width), torch.rand(5, 3)).square().mean().backward()
            self.adam.step()

    @property
    def entries(self):
        return {**{name: net.state_dict() for name, net in self.nets.items()}, "optim": self.adam.state_dict()}

    def save(self, file):
        torch.save(self.entries, file)
        return file

    def load(self, file):
        """As the original does: strict about every key and shape."""
        found = torch.load(file, weights_only=True)
        for name, net in self.nets.items():
            net.load_state_dict(found[name])
        self.adam.load_state_dict(found["optim"])


def two_agents(folder):
    folder.mkdir(exist_ok=True)
    return [Agent(seed=k, updates=3 + k).save(folder / f"trial0_agent{k}.pkl") for k in range(2)]


def same_bits(a, b):
    if isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            same_bits(a[key], b[key])
    elif isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype and a.shape == b.shape and a.numpy().tobytes() == b.numpy().tobytes()
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same_bits(x, y)
    else:
        assert a == b


def test_files_come_back_as_they_were(tmp_path):
    files = two_agents(tmp_path)
    found = read_agents(files)
    written = write_agents(found.parameters, found.kept, found.optimizers)
    for file, entries in zip(files, written, strict=True):
        same_bits(torch.load(file, weights_only=True), entries)
    assert any(array.any() for array in found.kept.values())
    assert found.facts.updates == [3, 4] and found.facts.words == ["env.agents=2", "hidden=7", "lr=0.01"]


def test_every_tensor_and_moment_has_its_own_name(tmp_path):
    agents = [Agent(seed=k) for k in range(2)]
    found = read_agents([agent.save(tmp_path / f"{k}.pkl") for k, agent in enumerate(agents)])
    for k, agent in enumerate(agents):
        for network, net in agent.nets.items():
            for name, parameter in net.named_parameters():
                np.testing.assert_array_equal(found.parameters[f"models.{k}.{network}.{name}"], parameter.detach())
        for name, parameter in agent.nets["local"].named_parameters():
            moments = found.optimizers[f"model_{k}"].moments[f"models.{k}.local.{name}"]
            assert moments["step"] == 3
            for slot in ("exp_avg", "exp_avg_sq"):
                np.testing.assert_array_equal(moments[slot], agent.adam.state[parameter][slot])
    assert len(found.parameters) == 2 * 2 * 16 and len(found.kept) == 2 * 2 * 6


def test_the_networks_compute_the_same_here(tmp_path):
    agent = Agent()
    for net in agent.nets.values():
        net.eval()
    found = read_agents([agent.save(tmp_path / "agent.pkl")])
    one = settings.apply(CONFIG, ["env.agents=1"])
    sizes = architecture(one, one.env.observation_dim, ACTIONS)
    x, fractions = torch.randn(5, INPUTS), torch.rand(5, 3)
    expected = agent.nets["local"](x, fractions).detach().numpy()
    policy = networks_torch.make_policy(one, sizes, found.parameters)
    np.testing.assert_allclose(policy.models[0].local(x, fractions, None).detach(), expected, atol=1e-6)
    policy = networks_jax.make_policy(one, sizes, found.parameters)
    np.testing.assert_allclose(
        policy.models[0].local(jnp.asarray(x), jnp.asarray(fractions), None), expected, atol=1e-6
    )


@pytest.mark.parametrize("mode", ["torch", "jax_policy", "jax_full"])
def test_both_frameworks_hold_weights_moments_and_counts_without_loss(mode, tmp_path):
    files = two_agents(tmp_path)
    found = read_agents(files)
    config = settings.apply(CONFIG, [f"mode={mode}"])
    with precision(config):
        trainer = make_trainer(find("treasurehunt"), config, Snapshot(found.parameters, found.optimizers), 4)
        after = trainer.snapshot()
    for file, entries in zip(files, write_agents(after.parameters, found.kept, after.optimizers), strict=True):
        expected = torch.load(file, weights_only=True)
        for state in expected["optim"]["state"].values():
            state["step"] = torch.tensor(float(state["step"]))
        same_bits(expected, entries)


def test_convert_reads_a_folder_and_writes_one_that_the_original_loads(tmp_path, capsys):
    two_agents(tmp_path / "agents")
    assert main(["convert", str(tmp_path / "agents"), "--to", "bundle", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["settings"] == "env.agents=2 hidden=7 lr=0.01" and said["inputs"] == INPUTS
    assert said["files"] == ["trial0_agent0.pkl", "trial0_agent1.pkl"]
    assert checkpoint.load(said["written"], side="numpy").step == 4
    back = tmp_path / "back"
    assert main(["convert", str(tmp_path / "agents.bundles"), "--to", "sorrel", "--out", str(back)]) == 0
    for k in range(2):
        agent = Agent(seed=9, updates=0)
        agent.load(back / f"agent{k}.pkl")
        same_bits(Agent(seed=k, updates=3 + k).entries, agent.entries)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["agents", "agents.bundles", "back"]
    assert main(["convert", str(tmp_path / "agents"), "--to", "torch"]) == 2
    assert main(["convert", str(tmp_path / "agents.bundles"), "--to", "sorrel", "--out", str(back)]) == 1
    assert "becomes a bundle first" in (said := capsys.readouterr().err) and "expected a new name" in said


@pytest.mark.parametrize("mode", ["torch", "jax_policy"])
def test_a_run_starts_from_them_and_goes_back(mode, tmp_path, capsys):
    two_agents(tmp_path / "agents")
    assert main(["convert", str(tmp_path / "agents"), "--to", "bundle"]) == 0
    weights = ["--weights", str(tmp_path / "agents.bundles"), "--runs-dir", str(tmp_path), "--json"]
    capsys.readouterr()
    assert main(["train", "treasurehunt", *WORDS, f"mode={mode}", *weights]) == 0
    run = json.loads(capsys.readouterr().out)["run"]
    assert main(["convert", run, "--to", "sorrel", "--out", str(tmp_path / "trained")]) == 0
    agent, first = Agent(updates=0), Agent(updates=3)
    agent.load(tmp_path / "trained" / "agent0.pkl")
    moved = (agent.nets["local"].head1.weight - first.nets["local"].head1.weight).abs().max()
    assert 0 < moved < 0.1  # a few steps of 0.01 from where the file left off
    assert 0 < agent.adam.state[agent.nets["local"].head1.weight]["step"] <= 4


def test_agents_are_numbered_as_people_count(tmp_path):
    for name in ("agent10.pkl", "agent2.pkl", "agent1.pt", "notes.txt", "b.json"):
        (tmp_path / name).write_bytes(b"")
    assert [file.name for file in find_files(tmp_path)] == ["agent1.pt", "agent2.pkl", "agent10.pkl"]
    files = [Agent(seed=k, updates=0).save(tmp_path / f"{k}.pkl") for k in (1, 0)]
    found = read_agents(files)  # as given
    np.testing.assert_array_equal(
        found.parameters["models.0.local.head1.bias"], Agent(seed=1, updates=0).nets["local"].head1.bias.detach()
    )


def test_an_agent_that_has_learned_nothing_has_no_moments(tmp_path):
    found = read_agents([Agent(updates=0).save(tmp_path / "a.pkl")])
    assert found.facts.updates == [0]
    assert write_agents(found.parameters, found.kept, found.optimizers)[0]["optim"]["state"] == {}
    bare = {k: v for k, v in Agent().entries.items() if k != "optim"}
    torch.save(bare, tmp_path / "b.pkl")
    assert read_agents([tmp_path / "b.pkl"]).optimizers == {}


def test_a_run_without_noise_read_writes_zeros_for_it():
    found = write_agents(
        {k: np.ones_like(v) for k, v in make_trainer(find("treasurehunt"), CONFIG).snapshot()[0].items()}
    )
    agent = Agent(updates=0)
    for name, net in agent.nets.items():
        net.load_state_dict(found[1][name])
    agent.adam.load_state_dict(found[1]["optim"])
    assert not found[0]["local"]["ff_1.epsilon_weight"].any() and found[0]["target"]["value.bias"].item() == 1


# Hostile and broken files


def changed(change):
    def save(file):
        entries = Agent().entries
        change(entries)
        torch.save(entries, file)

    return save


def cut(entries, network, name, take):
    entries[network][name] = entries[network][name][take]


class Evil:
    def __reduce__(self):
        return exec, ("raise SystemExit('executed')",)


BROKEN = {
    "truncated": (lambda f: f.write_bytes(Agent().save(f).read_bytes()[:-700]), "weights_only=True"),
    "empty": (lambda f: f.write_bytes(b""), "weights_only=True"),
    "pickled object": (lambda f: f.write_bytes(pickle.dumps(Evil())), "Anything but tensors is refused"),
    "object among tensors": (lambda f: torch.save({**Agent().entries, "more": Evil()}, f), "weights_only=True"),
    "no target": (changed(lambda e: e.pop("target")), "expected the entries local, target and optim, got local, optim"),
    "local is a list": (changed(lambda e: e.update(local=[1])), "expected the entries local, target and optim"),
    "not a dict": (lambda f: torch.save([1, 2], f), "got list"),
    "short weight": (
        changed(lambda e: cut(e, "target", "ff_1.weight", slice(3))),
        r"target: ff_1.weight: expected \(7, 7\), by the sizes of .*, got \(3, 7\)",
    ),
    "no noise": (changed(lambda e: e["local"].pop("value.epsilon_bias")), "value.epsilon_bias: expected .*got nothing"),
    "other cosines": (
        changed(lambda e: cut(e, "local", "cos_embedding.weight", np.s_[:, :16])),
        r"cos_embedding.weight: expected \(7, 64\), .*got \(7, 16\)",
    ),
    "another tensor": (changed(lambda e: e["local"].update(lstm=torch.ones(1))), "lstm: expected the published"),
    "no tensor": (changed(lambda e: e["local"].update({"head1.bias": 3})), "head1.bias: expected a torch tensor"),
    "no first layer": (
        changed(lambda e: e["local"].pop("head1.weight")),
        "head1.weight: expected a matrix, got nothing",
    ),
    "half": (changed(lambda e: e["local"].update({"head1.bias": torch.ones(7).half()})), "got float16, float32"),
    "two groups": (changed(lambda e: e["optim"]["param_groups"].append({})), "expected one Adam over the 16 tensors"),
    "few moments": (changed(lambda e: e["optim"]["param_groups"][0]["params"].pop()), "expected one Adam over the 16"),
    "odd index": (changed(lambda e: e["optim"]["param_groups"][0]["params"].__setitem__(0, [0])), "expected one Adam"),
    "other moments": (changed(lambda e: e["optim"]["state"][0].pop("exp_avg")), "head1.weight: expected the moments"),
    "short moment": (
        changed(lambda e: cut(e["optim"]["state"], 3, "exp_avg", slice(2))),
        r"expected exp_avg of 'models.0.local.cos_embedding.bias' in the shape of the weight, \(7,\), got \(2,\)",
    ),
    "no number": (changed(lambda e: e["optim"]["param_groups"][0].update(lr="1")), "lr: expected a number, got '1'"),
    "nan count": (changed(lambda e: e["optim"]["state"][0].update(step=float("nan"))), "expected a count of updates"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_refused_in_words_and_nothing_runs(name, tmp_path, capsys):
    save, message = BROKEN[name]
    save(tmp_path / "agent1.pkl")
    Agent().save(tmp_path / "agent0.pkl")
    with pytest.raises((CheckpointError, NoCounterpart), match=message):
        read_agents([tmp_path / "agent1.pkl"])
    assert main(["convert", str(tmp_path), "--to", "bundle", "--out", str(tmp_path / "out")]) == 1  # none is left out
    assert "agent1.pkl" in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_agents_of_other_sizes_and_halves_of_optimisers_are_refused(tmp_path):
    files = [Agent().save(tmp_path / "a.pkl"), Agent(hidden=6).save(tmp_path / "b.pkl")]
    with pytest.raises(CheckpointError, match=r"b.pkl: local: head1.weight: expected \(7, .*a.pkl, got \(6, "):
        read_agents(files)
    changed(lambda e: e.pop("optim"))(tmp_path / "c.pkl")
    with pytest.raises(CheckpointError, match="c.pkl: expected an entry optim as the other files have one"):
        read_agents([files[0], tmp_path / "c.pkl"])
    with pytest.raises(UsageError, match="expected every file once"):
        read_agents([files[0], files[0]])


def test_no_files_are_none(tmp_path, capsys):
    with pytest.raises(UsageError, match="expected the files of one agent or more, got none"):
        read_agents([])
    assert main(["convert", str(tmp_path), "--to", "bundle"]) == 1
    assert "got something else" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["noisy=false", "dueling=false", "cosines=8"])
def test_networks_that_the_original_does_not_have_are_not_written(word):
    config = settings.apply(CONFIG, [word])
    with pytest.raises(NoCounterpart, match="expected the published network, dueling=true noisy=true cosines=64"):
        write_agents(make_trainer(find("treasurehunt"), config).snapshot().parameters)
    with pytest.raises(UsageError, match="expected the models of IQN"):
        write_agents({"weight": np.ones(3)})
