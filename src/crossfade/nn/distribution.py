"""The face of an action distribution, kept by `Categorical` and `Gaussian` in torch and in JAX. Framework-free.

A distribution is described by numbers that a network puts out for each state, `outputs` of shape (*n, n_outputs).
Sampling is a function of noise that is given, so that both frameworks draw the same actions from the same numbers. An
action is kept and scored as it was sampled; what a world is given is `executed(action)`.
"""

from typing import Any, Literal, Protocol, runtime_checkable


@runtime_checkable
class Distribution(Protocol):
    """Hashable, and without arrays of its own."""

    @property
    def n_outputs(self) -> int:
        """Numbers that describe it."""
        ...

    @property
    def n_free(self) -> int:
        """How many of them, the last ones, are parameters of their own: the same in every state."""
        ...

    @property
    def noise(self) -> Literal["gumbel", "normal"]:
        """What `sample` needs: standard Gumbel or standard normal numbers, (*n, noise_dim)."""
        ...

    @property
    def noise_dim(self) -> int: ...

    def masked(self, outputs: Any, mask: Any) -> Any:
        """The outputs of the same distribution over legal actions, (*n, actions) bool; None means all of them."""
        ...

    def sample(self, outputs: Any, noise: Any) -> Any:
        """An action for each state."""
        ...

    def log_prob(self, outputs: Any, action: Any) -> Any:
        """The log-probability, or log-density, of actions as they were sampled: (*n,)."""
        ...

    def entropy(self, outputs: Any, noise: Any = None) -> Any:
        """In nats: (*n,). One without a closed form is estimated by the sample that `noise` makes, if it is given."""
        ...

    def sample_with_log_prob(self, outputs: Any, noise: Any) -> tuple[Any, Any]:
        """`sample` and the `log_prob` of what was sampled, computed together: to act."""
        ...

    def log_prob_and_entropy(self, outputs: Any, action: Any, noise: Any = None) -> tuple[Any, Any]:
        """Both, computed together: to learn."""
        ...

    def mode(self, outputs: Any) -> Any:
        """The most probable action."""
        ...

    def executed(self, action: Any) -> Any:
        """What a world is given for an action."""
        ...
