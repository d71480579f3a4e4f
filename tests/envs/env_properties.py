"""What holds for every environment: facts gathered by its public methods, and checks on them.

`facts` runs in either framework (jitted for JAX), so one compilation per environment serves all checks.
"""

import numpy as np


def facts(env, states, xp=np):
    """All that the environment says about these (not done) states, their children and their parents."""
    n = states.done.shape[0]
    ended = states._replace(done=~states.done)
    actions = xp.broadcast_to(xp.arange(env.n_actions), (n, env.n_actions))
    parents = xp.broadcast_to(xp.arange(env.n_parents), (n, env.n_parents))
    here, there, over = (
        widened(states, env.n_actions),
        widened(states, env.n_parents),
        widened(ended, env.n_actions),
    )
    forward_mask, backward_mask = env.forward_mask(states), env.backward_mask(states)
    child = where(xp, forward_mask, env.step(here, actions), here)
    undo = xp.where(forward_mask, env.parent_of(here, actions), 0)
    parent = where(xp, backward_mask, env.unstep(there, parents), there)
    redo = xp.where(backward_mask, env.action_of(there, parents), 0)
    found = {
        "states": states,
        "forward_mask": forward_mask,
        "backward_mask": backward_mask,
        "observation": env.observe(states),
        "observation64": env.observe(states, xp.float64),
        "log_reward": env.log_reward(states),
        "child": child,
        "undo": undo,
        "child_backward_mask": env.backward_mask(child),
        "child_undone": env.unstep(child, undo),
        "child_redo": env.action_of(child, undo),
        "parent": parent,
        "redo": redo,
        "parent_forward_mask": env.forward_mask(parent),
        "parent_redone": env.step(parent, redo),
        "parent_undo": env.parent_of(parent, redo),
        "done_forward_mask": env.forward_mask(ended),
        "done_backward_mask": env.backward_mask(ended),
        "done_stepped": env.step(over, actions),
        "done_undone": env.unstep(ended, undo[:, -1]),
        "done_redo": env.action_of(ended, undo[:, -1]),
        "done_log_reward": env.log_reward(ended),
        "source_undone": env.unstep(env.reset((env.n_parents,)), parents[0]),
    }
    if env.n_states is not None:
        found["index"] = env.index(states)
        found["child_index"] = env.index(child)
        found["child_decoded"] = env.state(found["child_index"])
        found["parent_index"] = env.index(parent)
        found["parent_decoded"] = env.state(found["parent_index"])
    return found


def walk(env, noise, backward_noise):
    """Forward walks under the given noise (valid actions only) and back again: what was visited, as lists over time.

    Runs in either framework; `noise` is (time, batch, n_actions), `backward_noise` (time, batch, n_parents).
    """
    state = env.reset(noise.shape[1:2])
    visited = [state]
    actions = []
    for row in noise:
        action = (env.forward_mask(state) * row).argmax(-1)
        state = env.step(state, action)
        visited.append(state)
        actions.append(action)
    back = [state]
    for row in backward_noise:
        state = env.unstep(state, (env.backward_mask(state) * row).argmax(-1))
        back.append(state)
    return visited, actions, back


def where(xp, mask, state, other):
    """`state` where the mask is True, else `other`: what follows from an invalid action is nobody's promise."""
    return state._replace(x=xp.where(mask[..., None], state.x, other.x), done=xp.where(mask, state.done, other.done))


def widened(state, k):
    """Each state k times, on a new axis."""
    return state._replace(x=state.x[:, None].repeat(k, axis=1), done=state.done[:, None].repeat(k, axis=1))


def same(a, b):
    """Row-wise equality of two batches of states."""
    return (a.x == b.x).all(-1) & (a.done == b.done)


def pick(mask, at):
    """mask[..., at] with `at` over all but the last axis."""
    return np.take_along_axis(mask, at[..., None], axis=-1)[..., 0]


def every_forward_action_can_be_undone(env, f):
    valid = f["forward_mask"][:, :-1]
    assert pick(f["child_backward_mask"], f["undo"])[:, :-1][valid].all()
    assert same(f["child_undone"], widened(f["states"], env.n_actions))[:, :-1][valid].all()
    assert (f["child_redo"] == np.arange(env.n_actions))[:, :-1][valid].all()
    assert not (f["child"].x == f["states"].x[:, None]).all(-1)[:, :-1][valid].any()
    assert not f["child"].done[:, :-1][valid].any()


def every_backward_action_can_be_redone(env, f):
    valid = f["backward_mask"]
    assert pick(f["parent_forward_mask"], f["redo"])[valid].all()
    assert same(f["parent_redone"], widened(f["states"], env.n_parents))[valid].all()
    assert (f["parent_undo"] == np.arange(env.n_parents))[valid].all()
    assert not f["parent"].done.any()


def stop_ends_with_the_same_object(env, f):
    valid = f["forward_mask"][:, -1]
    assert (f["child"].x[:, -1] == f["states"].x)[valid].all()
    assert (f["child"].done[:, -1] == valid).all()
    assert (f["child_redo"][:, -1] == env.n_actions - 1)[valid].all()
    assert same(f["child_undone"], widened(f["states"], env.n_actions))[:, -1][valid].all()


def a_done_state_stays_and_has_only_undo_stop(env, f):
    ended = f["states"]._replace(done=np.ones_like(f["states"].done))
    assert not f["done_forward_mask"].any() and not f["done_backward_mask"].any()
    assert same(f["done_stepped"], widened(ended, env.n_actions)).all()
    assert same(f["done_undone"], f["states"]).all()
    assert (f["done_redo"] == env.n_actions - 1).all()
    assert (f["done_log_reward"] == f["log_reward"]).all()


def only_the_source_has_no_parents(env, f):
    is_source = (f["states"].x == env.params.source).all(-1)
    assert is_source.any()
    assert (f["backward_mask"].any(-1) == ~is_source).all()
    assert (f["source_undone"].x == env.params.source).all() and not f["source_undone"].done.any()


def no_state_is_a_dead_end(env, f):
    assert f["forward_mask"].any(-1).all()
    assert f["forward_mask"][:, -1].all() == env.terminating


def ways_in_are_distinct(env, f):
    for row, valid in enumerate(f["backward_mask"]):
        ways = np.concatenate([f["parent"].x[row], f["redo"][row][:, None]], axis=1)[valid]
        assert len(np.unique(ways, axis=0)) == len(ways)


def rewards_and_observations_are_finite_and_tell_states_apart(env, f):
    assert np.isfinite(f["log_reward"]).all()
    assert f["child"].x.dtype == f["parent"].x.dtype == np.int32
    assert f["observation"].shape == (len(f["log_reward"]), env.observation_dim)
    assert f["observation"].dtype == np.float32
    distinct = len(np.unique(f["states"].x, axis=0))
    assert len(np.unique(f["observation"], axis=0)) == distinct


def indices_number_the_states(env, f):
    if env.n_states is None:
        return
    assert (f["index"] == np.arange(env.n_states)).all()
    for way, mask in (("child", "forward_mask"), ("parent", "backward_mask")):
        index, valid = f[f"{way}_index"], f[mask]
        assert ((index >= 0) & (index < env.n_states))[valid].all()
        assert (f[f"{way}_decoded"].x == f[way].x).all(-1)[valid].all()


CHECKS = [
    every_forward_action_can_be_undone,
    every_backward_action_can_be_redone,
    stop_ends_with_the_same_object,
    a_done_state_stays_and_has_only_undo_stop,
    only_the_source_has_no_parents,
    no_state_is_a_dead_end,
    ways_in_are_distinct,
    rewards_and_observations_are_finite_and_tell_states_apart,
    indices_number_the_states,
]
