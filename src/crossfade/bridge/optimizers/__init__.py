"""torch.optim and optax: optimisers, learning rates and schedules with all their state, in both directions.

exchange           `to_optax` and `to_torch_optimizer`
state_torch        a torch optimiser as plain data, and back; state_optax: the same data as an optax state, and back
transforms         torch's optimisers as optax chains
rates              learning rates in an optax state, followed or set by hand; plateau: ReduceLROnPlateau
schedules          torch's schedulers as functions of the update count; schedule_formulas: their closed forms
skipping           parameters that torch leaves alone
"""
