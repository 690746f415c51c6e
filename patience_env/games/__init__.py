"""The games: one module each. To add a game, add its module and its entry here (see CONTRIBUTING.md)."""

from patience_env.game import Entry

GAMES: tuple[Entry, ...] = (
    Entry("PatiencePoker-v0", "patience_env.games.patience_poker"),
    Entry("Paganini-v0", "patience_env.games.paganini", max_episode_steps=1000),
    Entry("RobinPost-v0", "patience_env.games.robin_post", max_episode_steps=500),
    Entry("Fourteenth-v0", "patience_env.games.fourteenth"),
    Entry("Sultan-v0", "patience_env.games.sultan"),
    Entry("Calculation-v0", "patience_env.games.calculation"),
    Entry("Nivernaise-v0", "patience_env.games.nivernaise", max_episode_steps=500),
    Entry("Fortress-v0", "patience_env.games.fortress", max_episode_steps=500),
    Entry("EmpressOfIndia-v0", "patience_env.games.empress_of_india"),
)
