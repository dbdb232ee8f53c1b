"""FedAvg rounds of fedjax with its jit backend."""

from __future__ import annotations

from itertools import pairwise

import fedjax
import jax
import jax.numpy as jnp
import numpy as np
import work

workload = work.WORKLOADS[work.asked().workload]


def parameters() -> list[dict[str, jax.Array]]:
    rng = np.random.default_rng(0)
    if workload.model == "cnn":
        shapes = [(5, 5, 3, 64), (5, 5, 64, 64), (1600, 384), (384, 192), (192, 10)]
    else:
        hidden = [200, 200] if workload.model == "mlp" else []
        sizes = [int(np.prod(workload.shape)), *hidden, workload.outputs]
        shapes = list(pairwise(sizes))
    made = [(rng.normal(size=s) / np.sqrt(np.prod(s[:-1]))).astype(np.float32) for s in shapes]
    return [{"w": jnp.asarray(w), "b": jnp.zeros(w.shape[-1])} for w in made]


def output(params: list[dict[str, jax.Array]], x: jax.Array) -> jax.Array:
    if workload.model == "cnn":
        x = jnp.moveaxis(x, 1, -1)
        for layer in params[:2]:
            x = jax.lax.conv_general_dilated(
                x, layer["w"], (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            x = jax.nn.relu(x + layer["b"])
            pool = (1, 2, 2, 1)
            x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, pool, pool, "VALID")
        params = params[2:]
    x = x.reshape(len(x), -1)
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


def loss(params: list[dict[str, jax.Array]], batch: dict[str, jax.Array], rng: object) -> jax.Array:
    chosen = jax.nn.log_softmax(output(params, batch["x"]))
    return -jnp.take_along_axis(chosen, batch["y"][:, None], 1).mean()


batching = fedjax.ShuffleRepeatBatchHParams(
    batch_size=workload.batch or int(workload.sizes().max()), num_steps=workload.steps, seed=0
)
algorithm = fedjax.algorithms.fed_avg.federated_averaging(
    jax.grad(loss), fedjax.optimizers.sgd(work.LR), fedjax.optimizers.sgd(1.0), batching
)
data = [fedjax.ClientDataset({"x": x, "y": y}) for x, y in workload.by_client()]
state, draws = algorithm.init(parameters()), np.random.default_rng(0)


def round() -> None:
    global state
    cohort = draws.choice(workload.clients, workload.cohort, replace=False)
    keys = jax.random.split(jax.random.PRNGKey(int(draws.integers(2**31))), workload.cohort)
    clients = [(str(k), data[k], key) for k, key in zip(cohort, keys, strict=True)]
    state, _ = algorithm.apply(state, clients)
    jax.block_until_ready(state.params)


work.Turns("fedjax", "jit").take(round)
