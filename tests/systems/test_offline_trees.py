"""Parameter trees of the published agents: flax's names and layouts, into ours and back, bit for bit."""

import json
from dataclasses import replace

import flax
import flax.linen as nn
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import optax
import pytest
import torch
from flax.training.train_state import TrainState

from crossfade import checkpoint
from crossfade.algos.offline import encoders, modules as specs, networks_jax, networks_torch
from crossfade.algos.offline.config import AGENTS
from crossfade.algos.offline.parameters import draw_parameters, online_names
from crossfade.cli import main
from crossfade.errors import CheckpointError
from crossfade.loading import load_attribute
from crossfade.random import random_numpy as random
from crossfade.systems.offline.config import OfflineDataConfig
from crossfade.systems.offline.published import trees
from crossfade.systems.offline.published.flax_names import ours, theirs, to_ours, to_theirs
from default_run import few

NETWORK = "agent/network/"
ENCODERS = (None, "mlp", "impala_debug", "resnet_34")


@pytest.fixture(autouse=True)
def unchecked(monkeypatch):
    """Without checks of types, which take most of the time where many specifications are made."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


def settings(agent, encoder=None):
    own = load_attribute(AGENTS[agent])()
    own = replace(own, latent_dim=3) if hasattr(own, "latent_dim") else own
    encoder = "mlp" if own.needs_encoder and encoder is None else encoder
    return OfflineDataConfig(agent=own, hidden=(5, 4), encoder_hidden=(6, 7), encoder=encoder)


def sized(config):
    observation = (7,) if config.encoding in (None, "mlp") else (8, 8, 3)
    return config.sizes(observation, 2)


def tree(agent, encoder=None, updates=17):
    """A tree as the original would have it, in which all numbers differ."""
    config = settings(agent, encoder)
    sizes = sized(config)
    modules = config.agent.modules(sizes)
    found, rng = {}, np.random.default_rng(0)
    for name, array in draw_parameters(config.agent, sizes, random.key(1)).items():
        path = theirs(name, modules[name.split(".")[0]])
        shape = to_theirs(path, array).shape
        found[f"{NETWORK}params/{path}"] = rng.normal(size=shape).astype(np.float32)
        for moment in ("mu", "nu"):
            idle = np.float32(0 if name.startswith("target_") else 1)
            found[f"{NETWORK}opt_state/0/{moment}/{path}"] = idle * rng.random(shape, np.float32)
    found[f"{NETWORK}opt_state/0/count"] = np.array(updates, np.int32)
    found[f"{NETWORK}step"] = np.array(updates + 1, np.int32)
    found["agent/rng"] = np.array([3, 4], np.uint32)
    return found


def same(a, b):
    assert set(a) == set(b)
    for name in a:
        assert a[name].dtype == b[name].dtype and a[name].shape == b[name].shape, name
        assert a[name].tobytes() == np.ascontiguousarray(b[name]).tobytes(), name


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("agent", AGENTS)
def test_names_go_there_and_back(agent, encoder):
    config = settings(agent, encoder)
    if not config.agent.images and encoder not in (None, "mlp"):
        pytest.skip("refused")
    modules = config.agent.modules(sized(config))
    names = [f"{key}.{name}" for key, module in modules.items() for name in module.laws]
    paths = [theirs(name, modules[name.split(".")[0]]) for name in names]
    assert len(set(paths)) == len(paths) and list(map(ours, paths)) == names


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize("agent", AGENTS)
def test_a_tree_comes_back_bit_for_bit(agent, suffix, tmp_path, capsys):
    original, file = tree(agent), tmp_path / f"params_17{suffix}"
    write = checkpoint.export_npz if suffix == ".npz" else checkpoint.export_safetensors
    write(original, file)
    assert main(["convert", str(file), "--to", "bundle", "--out", str(tmp_path / "bundles"), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["agent"], facts["updates"], facts["step"], facts["left_out"]) == (agent, 17, 18, [])
    bundle = checkpoint.load(tmp_path / "bundles", side="numpy")
    config = settings(agent)
    assert set(bundle.params) == set(draw_parameters(config.agent, sized(config), random.key(1)))
    assert set(bundle.optimizer.moments) == set(online_names(config.agent.modules(sized(config))))
    assert bundle.optimizer.step == bundle.step == 17 and list(bundle.key) == [3, 4]
    assert main(["convert", str(tmp_path / "bundles"), "--to", "infom", "--out", str(tmp_path / f"back{suffix}")]) == 0
    read = checkpoint.import_npz if suffix == ".npz" else checkpoint.import_safetensors
    same(original, read(tmp_path / f"back{suffix}"))


@pytest.mark.parametrize("encoder", few(["impala_debug", "resnet_34"], "impala_debug"))
def test_trees_with_images_come_back_too(encoder):
    original = tree("infom", encoder)
    found = trees.read_tree(original)
    assert f"encoder={encoder}" in found.facts.settings
    same(original, trees.write_tree(found.parameters, found.optimizer, found.key, found.kept, found.facts.step))


@pytest.mark.parametrize("agent", AGENTS)
def test_parameters_of_ours_come_back_bit_for_bit(agent):
    config = settings(agent)
    drawn = draw_parameters(config.agent, sized(config), random.key(2))
    found = trees.read_tree(trees.write_tree(drawn))
    same(drawn, found.parameters)
    assert found.optimizer is not None and found.optimizer.step == 0 and not found.kept


# Against flax itself


class FlaxMLP(nn.Module):
    widths: tuple

    @nn.compact
    def __call__(self, x):
        for i, width in enumerate(self.widths):
            x = nn.Dense(width)(x)
            if i + 1 < len(self.widths):
                x = nn.LayerNorm(use_fast_variance=False)(nn.gelu(x))
        return x


class FlaxValue(nn.Module):
    """An ensemble of MLPs of a state and an action."""

    widths: tuple

    def setup(self):
        many = nn.vmap(
            FlaxMLP, variable_axes={"params": 0}, split_rngs={"params": True}, in_axes=None, out_axes=0, axis_size=2
        )
        self.value_net = many((*self.widths, 1))

    def __call__(self, observations, actions):
        return self.value_net(jnp.concatenate([observations, actions], -1)).squeeze(-1)


def randomised(params):
    """Other numbers than 0 and 1, so that a scale taken for a bias shows."""
    leaves, shape = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(5), len(leaves))
    return jax.tree.unflatten(
        shape, [jax.random.normal(k, x.shape, x.dtype) for k, x in zip(keys, leaves, strict=True)]
    )


@pytest.mark.slow
def test_an_ensemble_computes_what_flax_computes(x64):
    net, spec = FlaxValue((5, 4)), specs.Value(7, (5, 4), 2, members=2)
    observations, actions = (jax.random.normal(jax.random.key(i), (6, n), float) for i, n in enumerate((7, 2)))
    params = randomised(net.init(jax.random.key(0), observations, actions)["params"])
    flat = flax.traverse_util.flatten_dict({"modules_critic": params}, sep="/")
    found = {ours(path): to_ours(path, np.asarray(array)) for path, array in flat.items()}
    assert {name: array.shape for name, array in found.items()} == {
        f"critic.{name}": shape for name, (_, shape) in spec.laws.items()
    }
    expected = np.asarray(net.apply({"params": params}, observations, actions))
    in_torch = networks_torch.make_policy({"critic": spec}, found, "float64")["critic"]
    read = lambda x: torch.from_numpy(np.array(x))
    np.testing.assert_allclose(in_torch(read(observations), read(actions)).detach(), expected, rtol=0, atol=1e-12)
    in_jax = networks_jax.make_policy({"critic": spec}, found, "float64")["critic"]
    np.testing.assert_allclose(in_jax(observations, actions), expected, rtol=0, atol=1e-12)


class FlaxStack(nn.Module):
    features: int

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(self.features, (3, 3), padding="SAME")(x)
        x = nn.max_pool(x, (3, 3), strides=(2, 2), padding="SAME")
        y = nn.Conv(self.features, (3, 3), padding="SAME")(nn.relu(x))
        return x + nn.Conv(self.features, (3, 3), padding="SAME")(nn.relu(y))


class FlaxHead(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x):
        return nn.gelu(nn.Dense(self.width)(x))


class FlaxImpala(nn.Module):
    def setup(self):
        self.stack_blocks = [FlaxStack(4), FlaxStack(4)]
        self.MLP_0 = FlaxHead(512)

    def __call__(self, images):
        x = images / 255.0
        for stack in self.stack_blocks:
            x = stack(x)
        return self.MLP_0(nn.relu(x).reshape(len(images), -1))


@pytest.mark.slow
def test_convolutions_compute_what_flax_computes(x64):
    images = jax.random.uniform(jax.random.key(0), (2, 7, 8, 3), float, 0, 255)
    net, spec = FlaxImpala(), specs.Coder(encoders.Impala((7, 8, 3), (4, 4), 1))
    params = randomised(net.init(jax.random.key(1), images)["params"])
    flat = flax.traverse_util.flatten_dict({"modules_encoder": params}, sep="/")
    found = {ours(path): to_ours(path, np.asarray(array)) for path, array in flat.items()}
    expected = np.asarray(net.apply({"params": params}, images))
    coder = networks_torch.make_policy({"encoder": spec}, found, "float64")["encoder"]
    got = coder(torch.from_numpy(np.array(images))).detach()
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12 * np.abs(expected).max())


@pytest.mark.slow
def test_a_train_state_of_flax_is_read_and_restored():
    """What docs/offline.md tells a user to run, on both ways."""
    original = tree("iql")
    params = flax.traverse_util.unflatten_dict(
        {k.removeprefix(f"{NETWORK}params/"): v for k, v in original.items() if "/params/" in k}, sep="/"
    )
    state = TrainState.create(apply_fn=None, params=params, tx=optax.adam(3e-4))
    for _ in range(3):
        state = state.apply_gradients(grads=jax.tree.map(jnp.cos, state.params))
    saved = {"agent": {"network": flax.serialization.to_state_dict(state), "rng": np.array([1, 2], np.uint32)}}
    flat = {k: np.asarray(v) for k, v in flax.traverse_util.flatten_dict(saved, sep="/").items()}
    found = trees.read_tree(flat)
    assert found.optimizer is not None and found.optimizer.step == 3 and found.facts.left_out == []
    written = trees.write_tree(found.parameters, found.optimizer, found.key, found.kept, found.facts.step)
    back = flax.traverse_util.unflatten_dict(written, sep="/")
    back["agent"]["network"]["opt_state"]["1"] = {}
    restored = flax.serialization.from_state_dict(state, back["agent"]["network"])
    assert int(restored.step) == int(state.step)
    leaves = lambda of: jax.tree.leaves((of.params, of.opt_state))
    for a, b in zip(leaves(restored), leaves(state), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


# What is kept, and what is refused


def test_moments_without_a_place_are_kept():
    original = tree("hilp")
    path = f"{NETWORK}opt_state/0/mu/modules_target_value/phi/Dense_0/bias"
    original[path] = original[path] + np.float32(1)
    found = trees.read_tree(original)
    still = {"modules_value/phi/Dense_2/bias", "modules_value/phi/LayerNorm_1/bias"}
    assert set(found.kept["mu"]) == {*still, "modules_target_value/phi/Dense_0/bias"}
    assert set(found.kept["nu"]) == still
    same(original, trees.write_tree(found.parameters, found.optimizer, found.key, found.kept, found.facts.step))


def test_a_centre_that_fine_tuning_has_spoiled_is_kept_and_read_as_zeros():
    original = tree("dino_rebrac")
    path = f"{NETWORK}params/modules_target_repr_center/value"
    original[path] = np.ones((4, 7), np.float32)
    found = trees.read_tree(original)
    assert not found.parameters[trees.CENTRE].any() and found.parameters[trees.CENTRE].shape == (7,)
    same(original, trees.write_tree(found.parameters, found.optimizer, found.key, found.kept, found.facts.step))


def test_shorter_trees_and_weights_alone_are_read():
    original = tree("rebrac")
    for root in (f"{NETWORK}params/", f"{NETWORK}", "agent/"):
        part = {k.removeprefix(root): v for k, v in original.items() if k.startswith(root)}
        found = trees.read_tree(part)
        assert (found.optimizer is None) == ("params" in root) and found.facts.agent == "rebrac"


KERNEL = f"{NETWORK}params/modules_value/value_net/Dense_0/kernel"
MEAN = "modules_actor/mean_net/bias"


def renamed(old, new):
    return lambda found: {path.replace(old, new): array for path, array in found.items()}


def without(part):
    return lambda found: {path: array for path, array in found.items() if part not in path}


def changed(path, array):
    return lambda found: {**found, path: array}


@pytest.mark.parametrize(
    ("agent", "broken", "hint"),
    [
        ("iql", renamed("modules_value/", "modules_vale/"), "expected the modules of one of"),
        ("iql", renamed("modules_critic/value_net/Dense_1", "modules_critic/value_net/Dense_7"), "layers.1"),
        ("iql", without("params/modules_critic/value_net/LayerNorm_0/bias"), "norms.0.bias"),
        ("iql", changed(KERNEL, np.zeros((8, 5), "f")), "value.value_net.layers.0.weight: expected (5, 7)"),
        ("iql", changed(KERNEL, np.zeros(5, "f")), "expected (2, 3) axes"),
        ("iql", changed(KERNEL, np.zeros((7, 5))), "all in float64"),
        ("iql", without("count"), "count: expected a whole number"),
        ("iql", changed(f"{NETWORK}opt_state/0/count", np.array(2**30)), "count: expected a whole number"),
        ("iql", without(f"/nu/{MEAN}"), "nu: expected the tree of params"),
        ("iql", changed(f"{NETWORK}opt_state/0/nu/{MEAN}", np.zeros(3, "f")), "expected float32 (2,)"),
        ("iql", changed(f"{NETWORK}opt_state/1/mu/{MEAN}", np.zeros(2, "f")), "expected one Adam"),
        ("iql", changed("agent/rng", np.zeros(4, np.uint32)), "rng: expected two words"),
        ("iql", without("params/"), "expected agent/network/params/modules_"),
        ("hilp", without("phi/Dense_2/bias"), "value.phi"),
    ],
)
def test_other_trees_are_refused_with_the_name(agent, broken, hint):
    with pytest.raises(CheckpointError) as error:
        trees.read_tree(broken(tree(agent)))
    assert hint in str(error.value)


def test_other_npz_files_are_none_of_these(tmp_path):
    np.savez(tmp_path / "data.npz", observations=np.zeros((2, 2), np.float32))
    assert trees.open_tree(tmp_path / "data.npz") is None


def test_another_systems_bundle_is_refused(tmp_path, capsys):
    checkpoint.save(tmp_path / "b", params={"trunk.0.weight": np.zeros((2, 2), np.float32)})
    assert main(["convert", str(tmp_path / "b"), "--to", "infom", "--out", str(tmp_path / "x.npz")]) == 1
    assert "expected the modules of one of" in capsys.readouterr().err
