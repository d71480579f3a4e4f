"""torch's training step executed by JAX: `bridge.Step` and `accelerate`.

step          `bridge.Step`: the user's face, and when a step may run
live          what an open step holds, and how its programs are made
program       one training step as a pure function of flat vectors
layout        what a program is made for: the parts of a module, who trains them, their mode
memory        torch's memory, read in place and written when a program has ended; batch, boxes: how a batch enters
moments       `optimizer.state` while a step is open
reads         what a loss reads beside its arguments, and whether it has changed; bytecode: the names in it
proof         the first call against one step of torch
accelerating  `accelerate`: the same from the torch loss alone
live_loss     a torch loss as a function of all that it reads; stand_ins, random_draws
"""
