"""How a mapping between a torch module and a JAX model is found, proved, and refused where there is none.

match        `bridge.match`: the whole search
both_models  the two models side by side, in float64 and with random weights; draws, examples and outputs for them
dataflow_*   which operation reads each array, the role of its axes, and the values on the way
program_jax  a JAX model as equations, run as far as the leaves found so far allow; primitives_numpy runs the commonest
candidates   which leaves could hold which arrays, and by which rule: arrangements, fusing, recurrent, axes
search       depth first, from the inputs on
probing      the outputs under a mapping, on weights and inputs of several scales
proof        `Mapping.verify`, and parameters without effect; constants: state that one side has as a constant
refusal      what to say where nothing fits; locating: the first operation that JAX does not compute
"""
