"""torch code as JAX functions: `import_torch` runs it once without values, writes down every ATen operation, and plays
the record with JAX's.

  tree         arguments and results: dicts, tuples, lists, dataclasses, their leaves
  modules      the tensors of an nn.Module by name, and their stand-ins while it is recorded
  graph        the record: values, operations, where in the user's code each was called
  capture      how torch code is recorded: without values, with detach and no_grad seen
  surroundings what torch is like meanwhile: plain kernels, no checks of values
  above        what a record of ATen does not see: recurrent layers as one, detach_
  memory       in-place operations and views: which values a write changes
  values       dtypes, ranks and axes as torch understands them
  rules_*      what each ATen operation is in JAX, with torch's derivative at kinks
  play         a record as a JAX function
  imported     `import_torch` and what it returns
  stream       torch's random operations drawn from the key that JAX was given
"""
