"""Write the records of a game: `python tests/data/record.py PatiencePoker-v0 --option placement=fixed --depth 4`.

Adds a playthrough (random legal play, or a policy's with `--policy`) to `playthroughs/<module>.json` and the counts of
legal sequences to `perft/<module>.json`, in place of older ones with the same options and deal. Look at what changed
before committing it: the records are there so that rules do not change unnoticed.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from patience_env.agents.policy import make_policy
from patience_env.env import PatienceEnv
from patience_env.table import Rows

HERE = Path(__file__).resolve().parent


def legal_sequences(env: PatienceEnv, depth: int) -> Iterator[int]:
    """Yield the number of legal sequences of 1, 2, ... `depth` actions from the position of `env`."""
    states = env.state_rows()
    for level in range(depth):
        rows = Rows(env.game, env.options, len(states), "cards", False)
        rows.states[:] = states
        rows.show(rows.all_rows)
        origins, actions = np.nonzero(rows.masks)
        yield len(actions)
        if level + 1 < depth:
            following = Rows(env.game, env.options, len(actions), "cards", False)
            following.states[:] = states[origins]
            following.show(following.all_rows)
            following.step(actions.astype(np.int64), np.zeros(len(actions), np.bool_))
            states = following.states


def final_facts(tables: list[dict[str, list[str]]]) -> dict[str, Any]:
    """Return the checksum of all the tables of a playthrough, and the last of them."""
    texts = "\n".join(json.dumps(table, sort_keys=True) for table in tables)
    return {"tables_sha256": hashlib.sha256(texts.encode()).hexdigest(), "final_table": tables[-1]}


def playthrough(game_id: str, options: dict[str, Any], deal: int, policy_name: str, most: int) -> dict[str, Any]:
    """Play a game (at most `most` actions) and return its record."""
    env = PatienceEnv(game_id, illegal_action="raise", **options)
    policy = make_policy(policy_name, game_id)
    policy.start(deal)
    env.reset(seed=deal, options={"deal": deal})
    actions, rewards, tables = [], [], []
    over = False
    while not over and len(actions) < most:
        actions.append(env.sample() if policy_name == "random" else policy.choose(env))
        _, reward, over, _, _ = env.step(actions[-1])
        rewards.append(reward)
        tables.append(env.table())
    record = {"id": game_id, "options": options, "deal": deal, "actions": actions, "rewards": rewards}
    return record | final_facts(tables)


def perft(game_id: str, options: dict[str, Any], deal: int, depth: int) -> dict[str, Any]:
    """Count the legal sequences of a deal and return their record."""
    env = PatienceEnv(game_id, illegal_action="raise", **options)
    env.reset(options={"deal": deal})
    return {"id": game_id, "options": options, "deal": deal, "counts": list(legal_sequences(env, depth))}


def write(kind: str, game_id: str, record: dict[str, Any]) -> Path:
    """Put a record into its file, in place of one with the same options and deal; return the file."""
    module = PatienceEnv(game_id).game.deal.__module__.rpartition(".")[2]
    path = HERE / kind / f"{module}.json"
    known = json.loads(path.read_text("utf-8")) if path.exists() else []
    known = known if isinstance(known, list) else [known]
    facts = ("options", "deal")
    kept = [other for other in known if any(other[fact] != record[fact] for fact in facts)]
    text = ",\n".join(json.dumps(each) for each in [*kept, record])
    path.write_text(f"[\n{text}\n]\n", "utf-8")
    return path


def literal(text: str) -> Any:
    """Read a Python literal, or take the text as it is."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def main() -> None:
    """Record what the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("game_id")
    parser.add_argument("--deal", type=int, default=1, help="the deal number (default: 1)")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="an option of the game")
    parser.add_argument("--policy", default="random", help="who plays (default: random)")
    parser.add_argument("--most", type=int, default=400, help="record at most so many actions (default: 400)")
    parser.add_argument("--depth", type=int, default=3, help="length of the counted sequences (default: 3)")
    given = parser.parse_args()
    options = {name: literal(value) for name, _, value in (text.partition("=") for text in given.option)}
    played = playthrough(given.game_id, options, given.deal, given.policy, given.most)
    print(
        f"{write('playthroughs', given.game_id, played)}: {len(played['actions'])} actions, {sum(played['rewards']):g}"
    )
    counted = perft(given.game_id, options, given.deal, given.depth)
    print(f"{write('perft', given.game_id, counted)}: {counted['counts']}")


if __name__ == "__main__":
    main()
