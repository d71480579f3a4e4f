"""The detach matrix of an offline agent: which modules learn from which term of its loss. Framework-free."""

from ...algos.offline.agent import Agent, Sizes, online
from ...algos.offline.batch import PHASES, Phase

Matrix = dict[Phase, dict[str, dict[str, bool]]]
"""By phase, term and module: whether the term's gradient reaches the module. Targets, which learn from none, are not
in it."""
TITLES: dict[Phase, str] = {"pretraining": "pre-training", "finetuning": "fine-tuning"}


def matrix(agent: Agent, sizes: Sizes) -> Matrix:
    """The detach matrix as the agent states it, in a revision, with encoders or without."""
    reached = agent.reached(sizes.spec, sizes.encoding is not None)
    modules = online(agent.modules(sizes))
    return {phase: {term: {m: m in of for m in modules} for term, of in reached[phase].items()} for phase in PHASES}


def table(found: Matrix) -> str:
    """The matrix in Markdown: a row for each term, a column for each module, a dot where it learns."""
    modules = list(next(iter(found["pretraining"].values())))
    lines = [["phase", "term", *modules], ["---", "---", *(":-:" for _ in modules)]]
    for phase, terms in found.items():
        for term, learns in terms.items():
            lines.append([TITLES[phase], term, *("●" if learns[module] else "" for module in modules)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
