"""Robots read from MJCF: ours, the user's own, and what is refused of theirs."""

import subprocess
import sys
from pathlib import Path

import mujoco
import numpy as np
import pytest
from robot_cases import NAMES, dynamics, nominal, scattered

from crossfade.envs.robot import Body, load, make_engine
from crossfade.envs.robot.engines import aba_numpy
from crossfade.envs.robot.kinematics_numpy import frames
from crossfade.errors import UsageError

OWN = """
<mujoco model="tripod">
  <option timestep=".002" gravity="0 0 -3.7"><flag eulerdamp="disable"/></option>
  <worldbody>
    <geom name="floor" type="plane" size="0 0 1" contype="1" conaffinity="0"/>
    <body name="hull" pos="1 2 .5" quat="0.9 0.1 0.2 0.3">
      <freejoint/>
      <geom type="box" size=".2 .1 .05" pos=".02 .01 0" euler="10 20 30" mass="2" contype="0" conaffinity="0"/>
      <body name="mast" pos="0 0 .1" euler="0 15 0">
        <geom type="capsule" fromto="0 0 0 0 0 .2" size=".02" mass=".3" contype="0" conaffinity="0"/>
        <body name="arm" pos="0 0 .2" euler="30 0 10">
          <joint name="shoulder" axis="1 1 0" pos=".02 -.01 .03" damping=".05" range="-90 90"/>
          <geom type="capsule" fromto="0 0 0 .2 0 0" size=".02" mass=".2" contype="0" conaffinity="0"/>
          <body name="hand" pos=".2 0 0">
            <joint name="wrist" axis="0 1 0" pos="0 0 .01" armature=".002"/>
            <geom name="palm" type="sphere" size=".03" mass=".1" contype="0" conaffinity="1"/>
            <body name="finger" pos=".05 0 0"><joint name="knuckle" axis="0 0 1"/>
              <geom name="tip" type="sphere" size=".01" pos=".03 0 0" mass=".05" contype="0" conaffinity="1"/></body>
            <body name="thumb" pos="0 .05 0"><joint name="saddle" axis="0 0 1"/>
              <geom type="sphere" size=".01" pos="0 .03 0" mass=".05" contype="0" conaffinity="0"/></body>
          </body>
        </body>
      </body>
      <body name="leg" pos="0 0 -.1"><joint name="hip" axis="0 1 0"/>
        <geom type="capsule" fromto="0 0 0 0 0 -.3" size=".02" mass=".4" contype="0" conaffinity="0"/>
        <geom name="sole" type="sphere" size=".02" pos="0 0 -.3" mass=".1" contype="0" conaffinity="1"/>
        <geom name="heel" type="sphere" size=".015" pos="-.1 0 -.3" mass=".1" contype="0" conaffinity="1"/></body>
    </body>
  </worldbody>
  <actuator>
    <motor joint="hip" gear="3" ctrlrange="-2 2" ctrllimited="true"/>
    <position joint="wrist" kp="20" forcerange="-5 4" forcelimited="true"/>
  </actuator>
  <keyframe>
    <key name="flat" qpos="0 0 .1  1 0 0 0  0 0 0 0 0"/>
    <key name="home" qpos="0 0 .45  1 0 0 0  .1 .2 .3 .4 .5"/>
  </keyframe>
</mujoco>
"""
"""A user's robot with all that ours do not have: turned bodies, welded ones, joints beside origins, branches."""


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "tripod.xml"
    path.write_text(OWN)
    return str(path)


def changed(tmp_path: Path, old: str, new: str) -> str:
    assert OWN.count(old) >= 1
    path = tmp_path / "changed.xml"
    keys = OWN.index("<keyframe>") if "joint" in old else len(OWN)  # other joints, another qpos
    path.write_text(OWN[:keys].replace(old, new) + ("</mujoco>" if "joint" in old else ""))
    return str(path)


def test_the_sizes_of_the_biped():
    model = load("sprig11")
    assert (model.nq, model.nv, model.nu) == (18, 17, 11)
    assert model.joint_qpos == tuple(range(7, 18)) and model.joint_qvel == tuple(range(6, 17))
    assert model.joints[0] == "waist_yaw" and set(model.torque_limit) == {4.0}
    assert len(model.feet) == 8 and abs(model.mass - 3.38) < 1e-9


@pytest.mark.parametrize(("name", "sizes", "base"), [("tuft8", (15, 14, 8), "free"), ("stilt6", (9, 9, 6), "planar")])
def test_the_sizes_of_the_others(name, sizes, base):
    model = load(name)
    assert (model.nq, model.nv, model.nu) == sizes and model.base == base


@pytest.mark.parametrize("name", NAMES)
def test_at_home_ours_touch_the_ground_and_keep_their_limits(name):
    model = load(name)
    assert not model.others and model is load(name) and hash(model) == hash(load(name))
    bottoms = frames(model, np.array(model.home)).feet[:, 2] - [foot.radius for foot in model.feet]
    assert np.abs(bottoms).max() < 5e-4
    low, high = np.array(model.joint_range).T
    assert (np.array(model.joint_home) >= low).all() and (np.array(model.joint_home) <= high).all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("physics", ["mujoco", "aba"])
def test_every_actuator_moves_its_own_joint(name, physics):
    model = load(name)
    engine, body = make_engine(model, physics, "numpy"), scattered(model, 1, up=1.0, spin=0.0)
    many = Body(*(np.repeat(part, model.nu + 1, 0) for part in body))
    torque = np.concatenate([np.zeros((1, model.nu)), np.eye(model.nu)])
    after = engine.step(many, torque, nominal(model, model.nu + 1)).qvel
    gained = (after[1:] - after[0])[:, list(model.joint_qvel)]
    assert (np.abs(gained).argmax(1) == np.arange(model.nu)).all() and (np.diag(gained) > 1e-3).all()


def test_a_robot_of_the_user(own):
    model = load(own)
    assert model.name == "tripod" and model.joints == ("hip", "wrist") and model.torque_limit == (6.0, 4.0)
    assert [link.name for link in model.links] == ["hull", "arm", "hand", "finger", "thumb", "leg"]
    assert model.home[7:] == (0.1, 0.2, 0.3, 0.4, 0.5) and model.gravity == 3.7
    assert [foot.name for foot in model.feet] == ["palm", "tip", "sole", "heel"]
    chosen = load(own, joints=("knuckle", "hip"), feet=("sole",), home="flat")
    assert chosen.joint_qpos == (9, 11) and chosen.torque_limit == (np.inf, 6.0) and chosen.home[2] == 0.1
    assert chosen.others == ("floor with palm", "floor with tip", "floor with heel")
    with pytest.raises(UsageError, match="physics=aba.*floor with palm.*physics=mujoco"):
        make_engine(chosen, "aba", "numpy")


def test_its_dynamics_are_those_of_mujoco(own):
    model = load(own)
    mj = mujoco.MjModel.from_xml_path(own)
    mj.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONTACT | mujoco.mjtDisableBit.mjDSBL_ACTUATION)
    mj.opt.disableflags &= ~int(mujoco.mjtDisableBit.mjDSBL_EULERDAMP)
    body, data = scattered(model, 1, up=20.0), mujoco.MjData(mj)
    data.qpos, data.qvel = body.qpos[0], body.qvel[0]
    mujoco.mj_forward(mj, data)
    mass, full = dynamics(model, body.qpos[0], body.qvel[0]), np.zeros((model.nv, model.nv))
    mujoco.mj_fullM(mj, data, full)
    np.testing.assert_allclose(mass[0], full, rtol=0, atol=1e-12)
    np.testing.assert_allclose(mass[1], data.qfrc_bias, rtol=0, atol=1e-12)
    feet = frames(model, body.qpos[0]).feet
    np.testing.assert_allclose(feet, [data.geom(foot.name).xpos for foot in model.feet], rtol=0, atol=1e-12)
    torque = np.array([[0.3, -0.02]])
    for _ in range(100):
        body = aba_numpy.Engine(model).step(body, torque, nominal(model, 1))
        data.qfrc_applied[list(model.joint_qvel)] = torque[0]
        mujoco.mj_step(mj, data)
    np.testing.assert_allclose(body.qpos[0], data.qpos, rtol=0, atol=1e-11)


def test_a_planar_base_above_the_origin(tmp_path):
    """Where body pos is not 0, qpos counts from there."""
    text = (Path(aba_numpy.__file__).parents[1] / "robots" / "stilt6.xml").read_text()
    path = tmp_path / "high.xml"
    path.write_text(
        text.replace('<body name="torso">', '<body name="torso" pos=".3 0 .4">').replace("0 .4 0  -", "0 0 0  -")
    )
    high, low = load(str(path)), load("stilt6")
    at = frames(high, np.array(high.home)).com - frames(low, np.array(low.home)).com
    np.testing.assert_allclose(at, [0.3, 0, 0], atol=1e-15)


# Refusals


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"joints": ("hipp",)}, "joints: .*'hipp'.*Did you mean 'hip'"),
        ({"joints": ("hip", "hip")}, "joints: .*twice"),
        ({"joints": ()}, "joints: expected at least one"),
        ({"feet": ("soul",)}, "feet: .*'soul'.*Did you mean 'sole'"),
        ({"feet": ("floor",)}, "feet: expected spheres of the robot, got 'floor', a plane"),
        ({"home": "hme"}, "home: .*'hme'.*Did you mean 'home'"),
        ({"home": (0.0, 1.0)}, "home: expected 12 finite numbers, got 2"),
        ({"home": (0.0,) * 11 + (np.nan,)}, "home: expected 12 finite numbers"),
        ({"home": (0.0,) * 12}, "quaternion of length 1"),
    ],
)
def test_settings_that_do_not_fit(own, settings, words):
    with pytest.raises(UsageError, match=words):
        load(own, **settings)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("<freejoint/>", "", "free joint or slide x.*no joints"),
        ("<freejoint/>", '<joint type="ball"/>', "free joint or slide x.*ball"),
        ('damping=".05"', 'frictionloss=".1"', "frictionloss: expected 0, got 0.1"),
        ('damping=".05"', 'stiffness="3"', "stiffness: expected 0, got 3"),
        ('damping=".05"', 'ref="10"', "ref: expected 0"),
        ('gravity="0 0 -3.7"', 'gravity="1 0 -3.7"', "sideways gravity: expected 0, got 1"),
        ('gravity="0 0 -3.7"', 'viscosity="1"', "viscosity: expected 0, got 1"),
        ('gravity="0 0 -3.7"', 'integrator="implicitfast"', "integrator: expected Euler"),
        (
            'name="wrist" axis="0 1 0"',
            'name="wrist" type="slide" axis="0 1 0"',
            r"hand: expected one hinge.*\['slide'\]",
        ),
        ('name="floor" type="plane"', 'name="floor" type="plane" pos="0 0 .1"', "ground: expected one plane"),
        (
            '<geom name="floor" type="plane" size="0 0 1" contype="1" conaffinity="0"/>',
            "",
            "ground: expected one plane",
        ),
        (
            'name="sole" type="sphere" size=".02"',
            'name="sole" type="box" size=".02 .02 .02"',
            "sole: expected what collides to be a plane, a sphere or a capsule, got a box",
        ),
        (
            '<body name="hull"',
            '<body name="ball" pos="3 0 1"><freejoint/><geom size=".1"/></body><body name="hull"',
            "one robot",
        ),
        ('mass="2"', 'mass="nan"', "MuJoCo can compile|finite"),
        ("</worldbody>", "</worldbdy>", "MuJoCo can compile"),
        ("<keyframe>", "<keyframes>", "MuJoCo can compile"),
    ],
)
def test_files_that_do_not_fit(tmp_path, old, new, words):
    with pytest.raises(UsageError, match=words):
        load(changed(tmp_path, old, new))


def test_no_home_is_said(tmp_path):
    path = tmp_path / "homeless.xml"
    path.write_text(OWN[: OWN.index("<keyframe>")] + "</mujoco>")
    with pytest.raises(UsageError, match="home: expected a keyframe, found none"):
        load(str(path))
    assert load(str(path), home=(0.0, 0.0, 1.0, 1.0, *[0.0] * 8)).home[2] == 1.0


def test_names_that_are_not_there():
    with pytest.raises(UsageError, match="sprig11, tuft8, stilt6 or the path.*'sprig'.*Did you mean 'sprig11'"):
        load("sprig")
    with pytest.raises(UsageError, match="physics: expected one of mujoco, aba, got 'abba'.*Did you mean 'aba'"):
        make_engine(load("stilt6"), "abba", "numpy")  # pyright: ignore


def test_without_mujoco_it_is_said(tmp_path):
    code = (
        "import sys; sys.modules['mujoco'] = None\n"
        "from crossfade.envs.robot import load\n"
        "from crossfade.errors import UsageError\n"
        "try: load('stilt6')\n"
        "except UsageError as error: assert 'crossfade[mujoco]' in str(error); print('said')"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "said\n"


def test_the_package_imports_neither_framework_nor_mujoco():
    code = (
        "import sys; from crossfade.envs.robot import Body, RobotModel, load, make_engine\n"
        "assert not {'jax', 'torch', 'mujoco'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
