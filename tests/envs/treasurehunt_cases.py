"""Maps and players, for the tests of treasurehunt in NumPy and as objects."""

import numpy as np

from crossfade.envs.treasurehunt.treasurehunt_numpy import Treasurehunt

UP, DOWN, LEFT, RIGHT = range(4)

f32 = np.float32


class NumpyGame:
    """One game in NumPy with the face of `ScalarGame`; states cannot be written to."""

    def __init__(self, params):
        self.game = Treasurehunt(params)

    def resume(self, state):
        for array in state:
            array.flags.writeable = False
        self.state = state

    def begin(self, uniform):
        self.resume(self.game.begin(uniform))

    def start_turn(self, uniform):
        self.resume(self.game.start_turn(self.state, uniform))

    def observe(self, agent):
        return self.game.observe(self.state, agent)

    def move(self, agent, action, uniform):
        state, reward = self.game.move(self.state, agent, np.int32(action), f32(uniform))
        self.resume(state)
        return reward

    def move_together(self, action, order, uniform):
        state, reward = self.game.move_together(self.state, action, order, uniform)
        self.resume(state)
        return reward
