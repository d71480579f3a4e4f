"""Motions for adversarial motion priors: features by hand, gaits of our own, clips from files, and reports of them."""

import numpy as np
import pytest
from amp_cases import BIPED, FLOATING, LEGS, SOLE, ankles, heights, home, walk

from crossfade.algos.amp.clips import load_clip, make_clip, resampled, velocities
from crossfade.algos.amp.features_numpy import features, rotated, transitions, yaw
from crossfade.algos.amp.gaits import Gait, Leg, foot_path, leg_angles
from crossfade.algos.amp.health import feature_distances, feature_report, gauge, health, ks_distance
from crossfade.algos.amp.reference import REPEATS, from_features, reference
from crossfade.errors import DataError, UsageError


def about(axis, angle) -> np.ndarray:
    """The unit quaternion of a rotation."""
    return np.array([np.cos(angle / 2), *(np.sin(angle / 2) * np.asarray(axis, float))])


def multiplied(a, b) -> np.ndarray:
    return np.array([a[0] * b[0] - a[1:] @ b[1:], *(a[0] * b[1:] + b[0] * a[1:] + np.cross(a[1:], b[1:]))])


# Features


def test_velocities_are_seen_from_the_heading_of_the_root():
    """Facing y, a world velocity along y is one straight ahead; a body's own turning is brought to that frame too."""
    tilt, turn = about((1, 0, 0), 0.3), about((0, 0, 1), np.pi / 2)
    quaternion = multiplied(turn, tilt)  # first tilted, then turned
    qpos = np.concatenate([[5.0, 6.0, 0.4], quaternion, np.arange(6) / 10])
    qvel = np.concatenate([[0.0, 2.0, 0.1], [0.0, 0.0, 1.0], np.arange(6) + 1.0])
    found = dict(zip(FLOATING.features, features(qpos, qvel, np.array([0.0, 0.03]), FLOATING), strict=True))
    assert found["root velocity x"] == pytest.approx(2.0) and found["root velocity y"] == pytest.approx(0, abs=1e-12)
    assert found["root velocity z"] == pytest.approx(0.1) and found["root height"] == pytest.approx(0.4)
    turning = [found[f"root turning about {axis}"] for axis in "xyz"]
    np.testing.assert_allclose(turning, [0, -np.sin(0.3), np.cos(0.3)], atol=1e-12)  # tilted, not turned
    assert (found["contact of foot_l"], found["contact of foot_r"]) == (1.0, 0.0)
    assert found["position of knee_l"] == pytest.approx(0.1) and found["velocity of knee_l"] == 2.0


def test_features_do_not_depend_on_where_one_is_and_where_one_faces():
    rng = np.random.default_rng(0)
    quaternion = rng.normal(size=4)
    quaternion /= np.linalg.norm(quaternion)
    qpos, qvel = np.concatenate([rng.normal(size=3), quaternion, rng.normal(size=6)]), rng.normal(size=12)
    turn = about((0, 0, 1), 1.234)
    elsewhere = np.concatenate([[3.0, -2.0], qpos[2:3], multiplied(turn, quaternion), qpos[7:]])
    turned = np.concatenate([rotated(turn, qvel[:3]), qvel[3:]])
    feet = np.array([0.01, 0.02])
    np.testing.assert_allclose(
        features(elsewhere, turned, feet, FLOATING), features(qpos, qvel, feet, FLOATING), atol=1e-12
    )
    assert yaw(about((0, 0, 1), 2.5)) == pytest.approx(2.5)


def test_a_quaternion_in_another_order_is_noticed():
    """The order (x, y, z, w) gives other features, so that no heuristic has to guess it."""
    qpos, qvel = np.concatenate([[0, 0, 0.4], about((0, 0, 1), 0.8), np.zeros(6)]), np.arange(12.0)
    other = np.concatenate([qpos[:3], np.roll(qpos[3:7], -1), qpos[7:]])
    feet = np.zeros(2)
    assert np.abs(features(other, qvel, feet, FLOATING) - features(qpos, qvel, feet, FLOATING)).max() > 0.1


def test_a_transition_is_normalised_by_the_reference_alone():
    phi = np.array([[0.0, 1.0], [2.0, 1.4], [4.0, 1.2]])
    found = from_features(phi, np.array([0.05, 0.05]), "float64")
    np.testing.assert_allclose(found.mean, [2.0, 1.2])
    np.testing.assert_allclose(found.deviation, [np.sqrt(8 / 3), np.sqrt(0.08 / 3)])
    np.testing.assert_allclose(found.transition[0] * np.sqrt([8 / 3, 0.08 / 3] * 2), [-2, -0.2, 0, 0.2], atol=1e-12)
    assert found.transition.shape == (2, 4)
    far = transitions(np.array([1e3, 1.2]), np.array([-1e3, 1.2]), found.mean, found.deviation)
    np.testing.assert_allclose(far, [5, 0, -5, 0], atol=1e-12)


def test_what_a_reference_holds_still_trembles_as_much_as_its_floor_and_what_moves_is_as_given():
    """The third moves, though less than its floor: noise and motion together have the floor's deviation."""
    t = np.arange(200.0)
    phi = np.stack([np.sin(t), np.full(200, 3.0), 0.06 * np.sqrt(2) * np.sin(t)], -1)
    found = from_features(phi, np.array([0.1, 0.1, 0.1]), "float64")
    np.testing.assert_allclose(found.deviation[1:], 0.1, rtol=1e-12)
    assert found.transition.shape == (REPEATS * 199, 6)
    rows = found.transition.reshape(REPEATS, 199, 2, 3)
    np.testing.assert_array_equal(rows[..., 0], np.broadcast_to(rows[0, ..., 0], rows[..., 0].shape))
    np.testing.assert_allclose(rows[0, :, 0, 0], ((np.sin(t) - found.mean[0]) / found.deviation[0])[:-1])
    np.testing.assert_array_equal(rows[:, :-1, 1], rows[:, 1:, 0])  # s' of a transition is s of the next
    np.testing.assert_allclose(found.transition[:, 1:3].std(0), 1, atol=0.03)
    np.testing.assert_allclose(found.transition.mean(0)[1:3], 0, atol=0.03)
    moving = np.corrcoef(rows[..., 0, 2].mean(0), np.sin(t[:-1]))[0, 1]
    assert moving > 0.9 and np.abs(rows[0, :, 0, 1] - rows[1, :, 0, 1]).max() > 1


# Gaits


@pytest.mark.parametrize("skeleton", [BIPED, FLOATING], ids=lambda s: s.base)
def test_a_gait_walks_at_its_speed_with_feet_that_stand_still_on_the_ground(skeleton):
    gait = Gait(speed=0.4, frequency=1.5, lift=0.04)
    clip = walk(skeleton, gait)
    base, up = len(home(skeleton)) - 6, 1 if skeleton.base == "planar" else 2
    np.testing.assert_allclose(clip.qvel[:, 0], 0.4, rtol=1e-9)
    above = clip.clearance
    assert above.min() == pytest.approx(0, abs=1e-9) and above.max() == pytest.approx(0.04, rel=0.05)
    assert np.abs(above - above.mean(0)).max(0).min() > 0.01  # both feet are lifted
    assert (above.min(1) < 1e-9).all()  # one is always on the ground
    for i, leg in enumerate(LEGS):
        hip, knee = clip.qpos[:, base + leg.hip], clip.qpos[:, base + leg.knee]
        x = clip.qpos[:, 0] - leg.thigh * np.sin(hip) - leg.shank * np.sin(hip + knee)
        standing = (above[1:, i] < 1e-9) & (above[:-1, i] < 1e-9)
        assert standing.sum() > 50 and np.abs(np.diff(x))[standing].max() < 1e-9
        level = hip + knee + clip.qpos[:, base + leg.ankle]
        np.testing.assert_allclose(level, 0, atol=1e-12)
    assert clip.qpos[0, up] == 0.34 and np.allclose(ankles(clip.qpos, base, up) - SOLE, above)


def test_inverse_kinematics_brings_the_ankle_where_it_is_asked_to():
    leg, rng = LEGS[0], np.random.default_rng(0)
    x, z = rng.uniform(-0.1, 0.1, 100), rng.uniform(-0.3, -0.15, 100)
    hip, knee, ankle = leg_angles(leg, x, z)
    np.testing.assert_allclose(-leg.thigh * np.sin(hip) - leg.shank * np.sin(hip + knee), x, atol=1e-12)
    np.testing.assert_allclose(-leg.thigh * np.cos(hip) - leg.shank * np.cos(hip + knee), z, atol=1e-12)
    assert (knee > 0).all() and np.allclose(hip + knee + ankle, 0)


def test_the_path_of_a_foot_neither_jumps_nor_kinks():
    gait, phase = Gait(stance=0.6), np.linspace(0, 1, 6001)
    for column in foot_path(gait, phase):
        assert abs(column[-1] - column[0]) < 1e-12
        slope = np.diff(column) * 6000
        assert np.abs(np.diff(np.append(slope, slope[0]))).max() < 0.02 * np.abs(slope).max()


def test_a_gait_out_of_reach_is_refused():
    with pytest.raises(UsageError, match="smaller speed or lift"):
        walk(gait=Gait(speed=3.0))
    with pytest.raises(UsageError, match="stance"):
        Gait(stance=1.0)


# Clips


def test_velocities_by_differences_are_those_of_the_motion():
    """A base that turns about its own y at 2 rad/s while it faces elsewhere, and joints that swing."""
    fps, n = 100.0, 60
    time = np.arange(n) / fps
    start = about((0, 0, 1), 1.0)
    quaternions = [multiplied(start, about((0, 1, 0), 2 * t)) * (-1) ** i for i, t in enumerate(time)]  # any sign
    joints = np.sin(3 * time)[:, None] * np.arange(1, 7)
    qpos = np.concatenate([np.stack([0.5 * time, 0 * time, 0.3 + 0 * time], -1), quaternions, joints], -1)
    qvel = velocities(qpos, fps, FLOATING)
    np.testing.assert_allclose(qvel[:, 3:6], np.tile([0, 2, 0], (n, 1)), atol=1e-9)
    np.testing.assert_allclose(qvel[:, :3], np.tile([0.5, 0, 0], (n, 1)), atol=1e-9)
    exact = 3 * np.cos(3 * time)[:, None] * np.arange(1, 7)
    np.testing.assert_allclose(qvel[1:-1, 6:], exact[1:-1], atol=3e-3 * 6)


def test_a_clip_of_another_rate_is_brought_to_that_of_the_policy():
    dense, sparse = walk(FLOATING, fps=200.0), walk(FLOATING, fps=50.0)
    found = resampled(dense.qpos, 200.0, 50.0, FLOATING)
    rows = min(len(found), len(sparse.qpos))
    np.testing.assert_allclose(found[:rows], sparse.qpos[:rows], atol=1e-9)
    odd = resampled(dense.qpos, 200.0, 60.0, FLOATING)
    np.testing.assert_allclose(np.linalg.norm(odd[:, 3:7], axis=-1), 1)
    assert len(odd) == int((len(dense.qpos) - 1) * 60 / 200) + 1


def write_csv(path, table, columns):
    np.savetxt(path, table, delimiter=",", header=",".join(columns), comments="", fmt="%.17g")


@pytest.fixture
def files(tmp_path):
    """The walking biped as files of both kinds."""
    clip = walk(FLOATING)
    np.savez(tmp_path / "walk.npz", qpos=clip.qpos, fps=50.0, columns=np.array(FLOATING.columns))
    write_csv(tmp_path / "walk.csv", clip.qpos, FLOATING.columns)
    return tmp_path, clip


@pytest.mark.parametrize("name", ["walk.npz", "walk.csv"])
def test_a_clip_of_a_file_is_the_one_that_was_written(files, name):
    folder, clip = files
    found = load_clip(folder / name, FLOATING, heights(FLOATING), 50.0, fps=50.0)
    for ours, theirs in zip(found[:3], clip[:3], strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-12)
    assert np.array_equal(reference(found, "float32").transition, reference(clip, "float32").transition)


def refused(path, message, skeleton=FLOATING, **given):
    with pytest.raises((DataError, UsageError), match=message):
        load_clip(path, skeleton, heights(skeleton), 50.0, **given)


def test_clips_of_another_skeleton_and_damaged_files_are_refused(files, tmp_path):
    folder, clip = files
    refused(folder / "walk.npz", "expected a clip of this skeleton, 9 columns: x, z, pitch, hip_l", BIPED)
    refused(folder / "walk.csv", "rows per second, which the file does not say. Set fps")
    save = lambda **arrays: np.savez(tmp_path / "clip.npz", **{"qpos": clip.qpos, "fps": 50.0, **arrays})
    for arrays, message in (
        ({"qpos": clip.qpos[:, :-1]}, r"13 columns.*shape \(\d+, 12\)"),
        ({"columns": np.array([*FLOATING.columns[:-1], "ankle_right"])}, "unknown ankle_right. Did you mean 'ankle_r'"),
        ({"columns": np.array(FLOATING.columns[::-1])}, "another order"),
        ({"qpos": np.where(np.arange(13) == 8, np.nan, clip.qpos)}, "finite numbers"),
        ({"qpos": clip.qpos * 1.1}, r"unit quaternions \(w, x, y, z\).*norm 1.1"),
        ({"qpos": clip.qpos[:2]}, "at least 3 rows"),
        ({"fps": 0.0}, "above 0"),
        ({"fps": np.ones(2)}, "one number `fps`"),
        ({"clearance": np.zeros((3, 2))}, "heights of feet"),
        ({"qpos": np.array(["a"])}, "array `qpos` of numbers"),
    ):
        save(**arrays)
        refused(tmp_path / "clip.npz", message)
    np.savez(tmp_path / "clip.npz", qpos=np.array([{}], dtype=object))
    refused(tmp_path / "clip.npz", "plain arrays")
    (tmp_path / "clip.npz").write_bytes(b"no archive")
    refused(tmp_path / "clip.npz", "plain arrays")
    (tmp_path / "clip.csv").write_text("x,z\n1,2\n1\n")
    refused(tmp_path / "clip.csv", "line 3: expected 2 numbers")
    (tmp_path / "clip.csv").write_text("x,z\n1,two\n")
    refused(tmp_path / "clip.csv", "line 2: expected numbers")
    (tmp_path / "clip.csv").write_text("")
    refused(tmp_path / "clip.csv", "clip of this skeleton", fps=50.0)
    refused(tmp_path / "nowhere.csv", "nothing there")
    refused(tmp_path / "clip.bvh", r"file .npz or .csv, got .bvh")


def test_heights_that_a_file_holds_are_taken(tmp_path):
    clip = walk(BIPED)
    told = clip.clearance + 1
    columns = (*BIPED.columns, *(f"clearance of {foot}" for foot in BIPED.feet))
    table = np.concatenate([clip.qpos, told], -1)
    write_csv(tmp_path / "walk.csv", table, columns)
    found = load_clip(tmp_path / "walk.csv", BIPED, heights(BIPED), 50.0, fps=50.0)
    np.testing.assert_allclose(found.clearance, told)
    slower = make_clip(clip.qpos, 50.0, BIPED, heights(BIPED), 25.0, told)
    np.testing.assert_allclose(slower.clearance, told[::2])


# Health


def test_a_discriminator_is_judged_by_its_accuracy():
    assert [health(a) for a in (0.5, 0.55, 0.65, 0.75, 0.9)] == ["blind", "healthy", "healthy", "healthy", "winning"]
    assert gauge(0.75) == "[##########..........] 0.75 healthy" and "winning" in gauge(1.0)


def test_the_distance_of_samples_is_the_largest_gap_of_their_distributions():
    a = np.array([1.0, 2.0, 3.0, 4.0])
    assert ks_distance(a, a) == 0 and ks_distance(a, a + 10) == 1
    assert ks_distance(a, np.array([3.0, 4.0, 5.0, 6.0])) == pytest.approx(0.5)


def test_a_velocity_in_other_units_stands_at_the_top_of_the_report():
    """D17: a reference in metres per second, a policy whose root velocity has unit length."""
    clip = walk(FLOATING, Gait(speed=0.4, sway=0.01))
    honest = features(clip.qpos, clip.qvel, clip.clearance, FLOATING)
    qvel = clip.qvel.copy()
    qvel[:, :3] /= np.linalg.norm(qvel[:, :3], axis=-1, keepdims=True)
    wrong = features(clip.qpos, qvel, clip.clearance, FLOATING)
    distances = feature_distances(honest, wrong, FLOATING.features)
    assert distances[0].feature == "root velocity x" and distances[0].ks == 1
    assert distances[-1].ks == 0 and "root velocity x" in feature_report(distances, 2).splitlines()[1]
    assert all(distance.ks == 0 for distance in feature_distances(honest, honest, FLOATING.features))


def test_a_leg_without_an_ankle_is_driven_too():
    hip, knee, _ = leg_angles(Leg(0, 1, None, 0.2, 0.2), np.array([0.0]), np.array([-0.4]))
    assert hip == pytest.approx(0, abs=1e-6) and knee == pytest.approx(0, abs=1e-6)
