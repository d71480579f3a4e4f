"""Operations that draw random numbers, by the name of their functional form."""

RANDOM = frozenset(
    "_standard_gamma bernoulli exponential log_normal multinomial native_dropout normal rand rand_like randint "
    "randint_like randn randn_like random randperm uniform".split()
)
