"""JAX functions that run in torch: a jaxpr becomes a list of torch calls.

    importing     `import_jax`: the user's trees and tensors, one trace for each shape
    modules       an argument of such a function as an `nn.Module`
    derivatives   autograd: torch runs the derivative that JAX makes of the function, so every convention is JAX's
    programs      a jaxpr as a list of torch calls; the table of rules, one for each primitive
    dtypes        how values of JAX's dtypes are carried
    elementwise, integers, reductions, shapes, indexing, products, windows, linear_algebra, draws, loops: the rules

A rule takes an equation of a jaxpr and gives the function that computes it on tensors. Rules never write to what they
are given, and may return views of it.
"""
