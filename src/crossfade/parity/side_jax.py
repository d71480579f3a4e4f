"""The JAX half of a twin, run level by level. The twin of this file is side_torch.py.

Every method takes weights as a NumPy state_dict of the torch half, carries them over by the mapping, and returns the
same quantities under the same names. Each function is compiled once and serves all calls.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import PyTree

from ..bridge.libraries import JaxModel, open_model
from ..bridge.mapping import Mapping
from ..bridge.optimizers.exchange import read_optax, read_torch, to_optax
from ..errors import NoCounterpart, UsageError
from .arrays import jax_array, jax_tree, leaves
from .side_torch import Quantities, TorchSide, make_optimizer, moments, split_info
from .twin import Twin
from .weights import Weights, from_jax


class JaxSide:
    """Runs `twin`'s JAX callables in one precision."""

    def __init__(self, twin: Twin, mapping: Mapping, dtype: str, torch_side: TorchSide):
        self.twin, self.mapping, self.dtype, self.torch_side = twin, mapping, dtype, torch_side
        self.data = twin  # where batches come from
        self.unread: str | None = None  # why the optimiser's state could not be compared
        self._evaluated: tuple[Weights, Quantities] | None = None

    @cached_property
    def batch(self) -> Any:
        return jax_tree(self.data.first_batch, self.dtype)

    def forward(self, weights: Weights) -> Quantities:
        given = self.batch if self.twin.forward is not None else jax_tree(self.data.inputs, self.dtype)
        return {"output": leaves(self._forward(self.named(weights), given), "output")}

    @cached_property
    def _forward(self) -> Callable:
        call = self.twin.half("forward", "jax") or self.template.call
        return jax.jit(lambda named, given: call(self.assemble(named), given))

    def loss(self, weights: Weights) -> Quantities:
        return {name: part for name, part in self._evaluate(weights).items() if name != "grad"}

    def grad(self, weights: Weights) -> Quantities:
        """Gradients by the torch names: the layout rules are part of what is differentiated."""
        kept = self.torch_side.frozen
        return {"grad": {n: g for n, g in self._evaluate(weights)["grad"].items() if n not in kept}}

    def stray_gradients(self, weights: Weights) -> list[str]:
        """Parameters that torch has frozen and JAX differentiates."""
        grad = self._evaluate(weights)["grad"]
        return [name for name in sorted(self.torch_side.frozen) if name in grad and np.any(grad[name])]

    def _evaluate(self, weights: Weights) -> Quantities:
        if self._evaluated is not None and self._evaluated[0] is weights:
            return self._evaluated[1]
        parameters = {name for name, _ in self.twin.torch.named_parameters()}
        named = self.named(weights)
        moving = {name: array for name, array in named.items() if name in parameters}
        fixed = {name: array for name, array in named.items() if name not in parameters}
        (loss, info), grad = self._value_and_grad(moving, fixed, self.batch)
        result = {"loss": leaves(loss, "loss"), "grad": {name: np.array(g) for name, g in grad.items()}}
        if info is not None:
            result["info"] = leaves(info, "")
        self._evaluated = weights, result
        return result

    @cached_property
    def _value_and_grad(self) -> Callable:
        def loss(moving, fixed, batch):
            return split_info(self.twin.half("loss", "jax")(self.assemble(moving | fixed), batch))

        return jax.jit(jax.value_and_grad(loss, has_aux=True))

    def update(self, weights: Weights) -> Quantities:
        return self._train(weights, (1,))[1]

    def updates(self, weights: Weights, steps: tuple[int, ...]) -> Quantities:
        return {f"change after {k}": done["change"] for k, done in self._train(weights, steps).items()}

    def _train(self, weights: Weights, steps: tuple[int, ...]) -> dict[int, Quantities]:
        model = open_model(self.model(weights))
        start = from_jax(self.mapping, model.leaves())
        tx, opt_state = self._optimizer
        if opt_state is None and tx is not None:
            opt_state = tx.init(model.params)
        params, state = model.params, model.state
        done = {}
        for i in range(max(steps)):
            params, state, opt_state, metrics = self._update(params, state, opt_state, self._batch_at(i))
            if i + 1 in steps:
                now = from_jax(self.mapping, open_model(model.build(params, state)).leaves())
                change = {name: np.asarray(now[name] - start[name]) for name in start}
                done[i + 1] = {"change": change, **self._moments(opt_state)}
                if metrics is not None:
                    done[i + 1]["metrics"] = leaves(metrics, "")
        return done

    @cached_property
    def _update(self) -> Callable:
        tx, _ = self._optimizer
        step = self.twin.half("update", "jax") or self._default_update

        def update(params, state, opt_state, batch):
            model, opt_state, metrics = step(self.template.build(params, state), tx, opt_state, batch)
            after = open_model(model)
            return after.params, after.state, opt_state, metrics

        return jax.jit(update)

    def _default_update(self, model: Any, tx: Any, opt_state: PyTree, batch: Any) -> tuple[Any, PyTree, dict[str, Any]]:
        opened = open_model(model)

        def loss(params):
            return split_info(self.twin.half("loss", "jax")(opened.build(params, opened.state), batch))

        (value, info), grads = jax.value_and_grad(loss, has_aux=True)(opened.params)
        updates, opt_state = tx.update(grads, opt_state, opened.params)
        params = optax.apply_updates(opened.params, updates)
        return opened.build(params, opened.state), opt_state, {"loss": value, **(info or {})}

    @cached_property
    def _optimizer(self) -> tuple[optax.GradientTransformation | None, PyTree]:
        """The transformation, and its first state where that does not come from `tx.init`."""
        if self.twin.optimizer is None:
            return None, None
        if isinstance(self.twin.optimizer, tuple):
            return self.twin.optimizer[1], None
        module = self.torch_side.fresh_module()
        optimizer = make_optimizer(self.twin, module)
        scheduler = self.twin.scheduler(optimizer) if self.twin.scheduler is not None else None
        mapping = replace(self.mapping, jax_model=self.template.build(self.template.params, self.template.state))
        tx, opt_state, _ = to_optax(
            optimizer,
            mapping,
            scheduler=scheduler,
            clip_norm=self.twin.clip_norm,
            clip_value=self.twin.clip_value,
            named_parameters=module,
        )
        return tx, opt_state

    def _moments(self, opt_state: PyTree) -> Quantities:
        if self.twin.optimizer is None:
            return {}
        module = self.torch_side.fresh_module()
        try:
            template = read_torch(make_optimizer(self.twin, module), module)
            quantities = moments(read_optax(opt_state, template, self.mapping))
        except (NoCounterpart, UsageError) as error:
            self.unread = str(error)
            return {}
        if isinstance(self.twin.optimizer, tuple):
            quantities.pop("momentum_buffer", None)  # optax's own may have the learning rate inside, to equal effect
        return quantities

    @cached_property
    def env_step(self) -> Callable:
        """The environment's step."""
        return jax.jit(self.twin.half("env", "jax").step)

    def rollout(self, weights: Weights, key: int | None = None) -> Quantities:
        model = self.model(weights) if self.twin.jax is not None else None
        start = jax.random.key(self.twin.seed if key is None else key)
        return {"trajectory": leaves(self.twin.half("rollout", "jax")(model, start), "")}

    def named(self, weights: Weights) -> dict[str, jax.Array]:
        """The mapped weights as JAX arrays, by torch's names."""
        mapped = {name for entry in self.mapping.entries for name in entry.torch}
        return {name: jax_array(array) for name, array in weights.items() if name in mapped}

    def assemble(self, named: dict[str, jax.Array]) -> Any:
        """The twin's JAX model with arrays given by torch's names."""
        return self.template.replace(self.mapping.leaves_to_jax(named))

    def model(self, weights: Weights) -> Any:
        """The twin's JAX model with these weights."""
        return self.template.replace(
            {path: jnp.asarray(a) for path, a in self.mapping.leaves_to_jax(self.named(weights)).items()}
        )

    @cached_property
    def template(self) -> JaxModel:
        """The twin's model with every floating leaf in the precision of the run."""
        opened = self.mapping.opened
        wide = {
            path: jax_array(np.asarray(leaf).astype(self.dtype))
            for path, leaf in opened.leaves().items()
            if jnp.issubdtype(leaf.dtype, jnp.floating)
        }
        return open_model(opened.replace(wide))

    def _batch_at(self, i: int) -> Any:
        return self.batch if self.twin.batches is None else jax_tree(self.data.batch_at(i), self.dtype)
