"""Two physics of robots: MuJoCo and MJX agree, our own agrees with itself and, in the air, with MuJoCo."""

from functools import cache

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from robot_cases import NAMES, dynamics, in_the_air, nominal, scattered, unlimited, various

from crossfade.envs.robot import Body, Variation, kinematics_jax, kinematics_numpy, load, make_engine
from crossfade.envs.robot.chunks_jax import CHUNK
from crossfade.envs.robot.engines import aba_jax, aba_numpy
from crossfade.envs.robot.engines.aba_numpy import GROUND_STIFFNESS
from crossfade.envs.robot.mjcf import compiled
from default_run import few

STEPS = 250


@cache
def tape(nu: int, n: int) -> np.ndarray:
    return np.random.default_rng(1).uniform(-1.5, 1.5, (STEPS, n, nu))


def host(engine, body, torques, variation):
    """Bodies after every step."""
    found = []
    for torque in torques:
        body = engine.step(body, torque, variation)
        found.append(body)
    return Body(*(np.stack(part) for part in zip(*found, strict=True)))


@jax.jit(static_argnums=0)
def compiled_run(engine, body, torques, variation, given=None, anew=False):
    """The same, compiled; `anew` takes each step from the body that is given for it, not from the one before."""

    def step(body, now):
        torque, one = now
        body = body if one is None else jax.tree.map(lambda new, old: jnp.where(anew, new, old), one, body)
        body = engine.step(body, torque, variation)
        return body, body

    return jax.lax.scan(step, body, (torques, given))[1]


def apart(ours, theirs):
    return max(np.abs(np.asarray(x) - np.asarray(y)).max() for x, y in zip(ours[:2], theirs[:2], strict=True))


def apart_of_speed(ours, theirs):
    """How far apart, in shares of 1 plus the greatest speed of each robot: impacts change it by 10 and more at once."""
    scale = 1 + np.abs(ours.qvel).max(-1, keepdims=True)
    return max((np.abs(x - np.asarray(y)) / scale).max() for x, y in zip(ours[:2], theirs[:2], strict=True))


def lowest(model, qpos):
    """Height of the lowest foot above the ground."""
    spheres = kinematics_numpy.frames(model, qpos).feet
    return (spheres[..., 2] - [foot.radius for foot in model.feet]).min(-1)


@pytest.mark.parametrize("name", few(NAMES, "stilt6"))
def test_mujoco_and_mjx_agree_through_contact_and_a_fall(x64, name):
    """Float64, different robots side by side, the first as it is."""
    model = load(name)
    start, variation, torques = scattered(model, 4), various(model, 4), tape(model.nu, 4)
    ours = host(make_engine(model, "mujoco", "numpy"), start, torques, variation)
    theirs = compiled_run(make_engine(model, "mujoco", "jax"), *jax.tree.map(jnp.asarray, (start, torques, variation)))
    assert (lowest(model, ours.qpos[:60]) < 0).any(0).all()  # each has touched the ground
    height = kinematics_numpy.base(model, ours.qpos, ours.qvel).position[..., 2]
    assert (height[-1] < height[0] / 2).any()  # and some have fallen
    assert apart(ours, theirs) <= 1e-12


@pytest.mark.parametrize("name", few(NAMES, "sprig11"))
def test_the_host_engine_is_mujoco(name):
    """`mj_step`, with its own warm starts."""
    model = load(name)
    start, torques = scattered(model, 1), tape(model.nu, 1)
    mj = compiled(model)
    data = mujoco.MjData(mj)
    data.qpos, data.qvel = start.qpos[0], start.qvel[0]
    ours = host(make_engine(model, "mujoco", "numpy"), start, torques, nominal(model, 1))
    for t in range(STEPS):
        data.qfrc_applied[list(model.joint_qvel)] = torques[t, 0]
        mujoco.mj_step(mj, data)
        assert np.abs(ours.qpos[t, 0] - data.qpos).max() <= 1e-12
        assert np.abs(ours.warmstart[t, 0] - data.qacc_warmstart).max() <= 1e-9 * (1 + np.abs(data.qacc).max())


@pytest.mark.parametrize("name", NAMES)
def test_our_physics_agree_in_numpy_and_jax(x64, name):
    """Float64, with contacts, limits and falls, different robots side by side: each step, and all one after the other.

    The ground is stiff: what one step rounds, 250 of them make about a thousand times larger.
    """
    model = load(name)
    start, variation, torques = scattered(model, 5), various(model, 5), tape(model.nu, 5)
    ours = host(aba_numpy.Engine(model), start, torques, variation)
    assert (lowest(model, ours.qpos[:60]) < 0).any(0).all()
    angle, limits = ours.qpos[..., list(model.joint_qpos)], np.array(model.joint_range)
    assert (angle < limits[:, 0]).any() and (angle > limits[:, 1]).any()
    before = Body(*(np.concatenate([first[None], rest[:-1]]) for first, rest in zip(start, ours, strict=True)))
    run = jax.tree.map(jnp.asarray, (start, torques, variation, before))
    assert apart_of_speed(ours, compiled_run(aba_jax.Engine(model), *run, True)) <= 1e-12
    assert apart(ours, compiled_run(aba_jax.Engine(model), *run, False)) <= 1e-9


@pytest.mark.parametrize("name", NAMES)
def test_in_the_air_our_physics_are_mujoco(name):
    model = unlimited(load(name))
    start, torques, mj = scattered(model, 1, up=50.0), tape(model.nu, 1) / 5, in_the_air(model)
    data = mujoco.MjData(mj)
    data.qpos, data.qvel = start.qpos[0], start.qvel[0]
    ours = host(aba_numpy.Engine(model), start, torques, nominal(model, 1))
    for t in range(STEPS):
        data.qfrc_applied[list(model.joint_qvel)] = torques[t, 0]
        mujoco.mj_step(mj, data)
        assert np.abs(ours.qpos[t, 0] - data.qpos).max() <= 1e-12
        assert np.abs(ours.qvel[t, 0] - data.qvel).max() <= 1e-12 * (1 + np.abs(data.qvel).max())


@pytest.mark.parametrize("name", NAMES)
def test_mass_matrix_and_bias_force(name):
    """By Jacobians, in MuJoCo, and in a step of our own: (M + h D) qacc = torque - D qvel - bias."""
    model = unlimited(load(name))
    mj = in_the_air(model)
    data, starts = mujoco.MjData(mj), scattered(model, 10, up=50.0, spin=2.0)
    torque = tape(model.nu, 10)[0]
    after = aba_numpy.Engine(model).step(starts, torque, nominal(model, 10))
    for i in range(10):
        mass, bias = dynamics(model, starts.qpos[i], starts.qvel[i])
        data.qpos, data.qvel = starts.qpos[i], starts.qvel[i]
        mujoco.mj_forward(mj, data)
        full = np.zeros((model.nv, model.nv))
        mujoco.mj_fullM(mj, data, full)
        np.testing.assert_allclose(mass, full, rtol=0, atol=1e-12)
        np.testing.assert_allclose(bias, data.qfrc_bias, rtol=0, atol=1e-12 * np.abs(bias).max())
        qacc = (after.qvel[i] - starts.qvel[i]) / model.timestep
        force = np.zeros(model.nv)
        force[list(model.joint_qvel)] = torque[i]
        force -= mj.dof_damping * starts.qvel[i] + bias
        np.testing.assert_allclose((mass + model.timestep * np.diag(mj.dof_damping)) @ qacc, force, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_frames_are_those_of_mujoco(x64, name):
    model = load(name)
    mj = compiled(model)
    data, body = mujoco.MjData(mj), scattered(model, 20)
    ours = kinematics_numpy.frames(model, body.qpos)
    for i in range(20):
        data.qpos, data.qvel = body.qpos[i], body.qvel[i]
        mujoco.mj_forward(mj, data)
        np.testing.assert_allclose(ours.links[i], data.xpos[1:], rtol=0, atol=1e-14)
        np.testing.assert_allclose(ours.com[i], data.subtree_com[1], rtol=0, atol=1e-14)
        np.testing.assert_allclose(ours.feet[i], [data.geom(f.name).xpos for f in model.feet], rtol=0, atol=1e-14)
        where = kinematics_numpy.base(model, body.qpos[i], body.qvel[i])
        np.testing.assert_allclose(where.position, data.xpos[1], rtol=0, atol=1e-14)
        np.testing.assert_allclose(where.quaternion, data.xquat[1], rtol=0, atol=1e-14)
        spin = np.zeros(6)
        mujoco.mj_objectVelocity(mj, data, mujoco.mjtObj.mjOBJ_XBODY, 1, spin, 1)
        np.testing.assert_allclose(where.angular, spin[:3], rtol=0, atol=1e-14)
        mujoco.mj_objectVelocity(mj, data, mujoco.mjtObj.mjOBJ_XBODY, 1, spin, 0)
        np.testing.assert_allclose(where.velocity, spin[3:], rtol=0, atol=1e-14)
    both = jax.jit(lambda q, v: (kinematics_jax.frames(model, q), kinematics_jax.base(model, q, v)))
    theirs = both(jnp.asarray(body.qpos.reshape(4, 5, -1)), jnp.asarray(body.qvel.reshape(4, 5, -1)))
    mine = ours, kinematics_numpy.base(model, body.qpos, body.qvel)
    for x, y in zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True):
        assert y.shape == (4, 5, *x.shape[1:])
        np.testing.assert_allclose(x, y.reshape(x.shape), rtol=0, atol=1e-14)


# Variation


@pytest.mark.parametrize("physics", ["mujoco", "aba"])
@pytest.mark.parametrize("name", NAMES)
def test_masses_and_damping_in_the_air(name, physics):
    """Of a robot that is heavier and more damped: MuJoCo's model, changed alike, gives the same step."""
    model = unlimited(load(name)) if physics == "aba" else load(name)
    mj = in_the_air(model) if physics == "aba" else compiled(model)
    mj.body_mass *= 1.13
    mj.body_inertia *= 1.13
    mj.dof_damping[-len(model.links) + 1 :] += 0.4
    mujoco.mj_setConst(mj, mujoco.MjData(mj))
    data, start, torque = mujoco.MjData(mj), scattered(model, 1, up=50.0), tape(model.nu, 1)[0]
    data.qpos, data.qvel = start.qpos[0], start.qvel[0]
    data.qfrc_applied[list(model.joint_qvel)] = torque[0]
    mujoco.mj_step(mj, data)
    step = lambda **fields: (
        make_engine(model, physics, "numpy").step(start, torque, nominal(model, 1, **fields)).qvel[0]
    )
    assert np.abs(step(mass=1.13, damping=0.4) - data.qvel).max() <= 1e-12
    for fields in ({}, {"mass": 1.13}, {"damping": 0.4}):
        assert np.abs(step(**fields) - data.qvel).max() > 1e-4


def held(model, engine, body, variation, seconds):
    """A robot whose joints are held as at home: its states at every step."""
    joints, rates, home = list(model.joint_qpos), list(model.joint_qvel), np.array(model.joint_home)
    found = [body]
    for _ in range(round(seconds / model.timestep)):
        torque = 60 * (home - body.qpos[..., joints]) - 1.5 * body.qvel[..., rates]
        body = engine.step(body, torque, variation)
        found.append(body)
    return found


@pytest.mark.parametrize("physics", ["mujoco", "aba"])
def test_the_quadruped_stands_and_slides(physics):
    """On the ground, higher up, lighter, heavier; then all of them pushed. mu g is what friction takes from speed."""
    model = load("tuft8")
    engine, home = make_engine(model, physics, "numpy"), np.tile(np.array(model.home), (5, 1))
    terrain, mass, friction = np.array([0, 0.015, 0, 0, 0]), np.array([1, 1, 0.5, 2, 1]), np.array([0.1] * 4 + [0.2])
    variation = nominal(model, 5, terrain=terrain, mass=mass, friction=friction)
    rest = held(model, engine, Body(home, np.zeros((5, model.nv)), np.zeros((5, model.nv))), variation, 2.0)[-1]
    bottoms = kinematics_numpy.frames(model, rest.qpos).feet[..., 2] - [foot.radius for foot in model.feet]
    depth = terrain[:, None] - bottoms
    assert np.abs(rest.qvel).max() < 5e-3
    assert (depth > 0).all() and depth.max() < 0.004 * mass.max()
    pushed = rest._replace(qvel=rest.qvel + np.eye(model.nv)[0])
    states = held(model, engine, pushed, variation, 0.3)
    places = kinematics_numpy.frames(model, np.stack([body.qpos for body in states])).com[..., 0]
    lost = -2 * np.polyfit(np.arange(len(places)) * model.timestep, places, 2)[0]
    if physics == "aba":
        np.testing.assert_allclose(GROUND_STIFFNESS * depth.sum(-1), mass, rtol=2e-3)  # the ground carries the weight
        np.testing.assert_allclose(lost, friction * model.gravity, rtol=0.1)
    else:  # whose soft pyramids take more
        assert (lost > 0.9 * friction * model.gravity).all() and lost[4] > 1.2 * lost[0]


@pytest.mark.parametrize("physics", ["mujoco", "aba"])
def test_limits_hold_joints(physics):
    model = load("stilt6")
    engine, body = make_engine(model, physics, "numpy"), scattered(model, 1, up=50.0)
    for _ in range(200):
        body = engine.step(body, np.full((1, model.nu), 4.0), nominal(model, 1))
    beyond = body.qpos[0, list(model.joint_qpos)] - np.array(model.joint_range)[:, 1]
    assert np.abs(beyond).max() < 0.1 and (beyond > 0).all()


# Batches and numbers


@pytest.mark.parametrize("physics", ["mujoco", "aba"])
def test_batches_of_any_shape_on_the_host(physics):
    model = load("stilt6")
    engine, many, torque = make_engine(model, physics, "numpy"), scattered(model, 6), tape(model.nu, 6)[0]
    variation = various(model, 6)
    flat = engine.step(many, torque, variation)
    folded = engine.step(
        Body(*(part.reshape(2, 3, -1) for part in many)),
        torque.reshape(2, 3, -1),
        Variation(*(part.reshape(2, 3) for part in variation)),
    )
    alone = engine.step(Body(*(part[4] for part in many)), torque[4], Variation(*(part[4] for part in variation)))
    for whole, parts, one in zip(flat, folded, alone, strict=True):
        np.testing.assert_array_equal(whole.reshape(parts.shape), parts)
        np.testing.assert_allclose(whole[4], one, rtol=0, atol=1e-12)


def test_chunks_change_nothing(x64):
    """More robots than a chunk holds, and not a multiple of it; one by itself; two axes."""
    model, n = load("stilt6"), CHUNK + 6
    engine, given = aba_jax.Engine(model), (scattered(model, n), tape(model.nu, n)[0], various(model, n))
    step = jax.jit(engine.step)
    ours = aba_numpy.Engine(model).step(*given)
    whole = step(*jax.tree.map(jnp.asarray, given))
    assert apart(ours, whole) <= 1e-12
    one = step(*jax.tree.map(lambda part: jnp.asarray(part[n - 1]), given))
    assert apart([part[n - 1] for part in ours], one) <= 1e-12
    folded = step(*jax.tree.map(lambda part: jnp.asarray(part.reshape(2, -1, *part.shape[1:])), given))
    assert folded.qpos.shape == (2, n // 2, model.nq)
    assert apart([part.reshape(2, n // 2, -1) for part in ours], folded) <= 1e-12


@pytest.mark.parametrize("physics", ["mujoco", "aba"])
def test_float32_stays_float32_on_the_host(physics):
    model = load("stilt6")
    cast = lambda tree: jax.tree.map(lambda part: part.astype(np.float32), tree)
    start, variation, torque = scattered(model, 3), various(model, 3), tape(model.nu, 3)[0]
    engine = make_engine(model, physics, "numpy")
    small, large = engine.step(*cast((start, torque, variation))), engine.step(start, torque, variation)
    assert all(part.dtype == np.float32 for part in small)
    assert apart(small, large) < 1e-4


@pytest.mark.slow
def test_float32_in_jax():
    """Under x64 too."""
    model = load("stilt6")
    start, variation, torque = scattered(model, 3), various(model, 3), tape(model.nu, 3)[0]
    small = jax.tree.map(lambda part: part.astype(np.float32), (start, torque, variation))
    right = aba_numpy.Engine(model).step(start, torque, variation)
    for x64 in (False, True):
        with jax.enable_x64(x64):
            found = jax.jit(aba_jax.Engine(model).step)(*jax.tree.map(jnp.asarray, small))
            assert all(part.dtype == np.float32 for part in found)
            assert apart(found, right) < 1e-4


@pytest.mark.parametrize("physics", ["mujoco", "aba"])
@pytest.mark.parametrize("field", Body._fields[:2])
def test_numbers_that_are_not_finite_stay_in_their_robot(physics, field):
    model = load("stilt6")
    engine, start, torque = make_engine(model, physics, "numpy"), scattered(model, 3), tape(model.nu, 3)[0]
    broken = start._replace(**{field: getattr(start, field).copy()})
    getattr(broken, field)[1, 4] = np.nan
    variation = nominal(model, 3)
    well, ill = engine.step(start, torque, variation), engine.step(broken, torque, variation)
    for good, bad in zip(well[:2], ill[:2], strict=True):
        np.testing.assert_array_equal(good[[0, 2]], bad[[0, 2]])
        assert np.isnan(bad[1]).any()
    again = engine.step(ill, torque, variation)
    assert np.isnan(again.qpos[1]).any() and np.isfinite(again.qpos[[0, 2]]).all()


def test_our_physics_survive_wild_actions():
    """Full torques at random for 1 s, through falls: no number is lost."""
    model = load("sprig11")
    engine, body, rng = aba_numpy.Engine(model), scattered(model, 16), np.random.default_rng(2)
    for _ in range(250):
        torque = rng.uniform(-1, 1, (16, model.nu)) * model.torque_limit
        body = engine.step(body, torque, various(model, 16))
    assert np.isfinite(body.qpos).all() and np.abs(body.qvel).max() < 200
