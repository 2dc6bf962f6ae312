"""Training text for the embedded model.

Two kinds of text, both as chat messages (``[{"role": ..., "content": ...}, ...]``):

* free dialogues that ship inside PyPI packages: ``chitchat-dataset`` (MIT, Brigham Young
  University) and ``chatterbot-corpus`` (BSD-3-Clause, English part);
* dialogues and tales that this module writes itself from seeded templates (Apache-2.0, like
  the rest of the repository).
"""

from __future__ import annotations

import importlib.util
import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from embedded_facts import (
    ANIMALS,
    CAPITALS,
    DEFINITIONS,
    FOODS,
    HOW_TO,
    JOBS,
    NAMES,
    OPPOSITES,
    POEMS,
    SMALL_TALK,
    SYSTEM_PROMPTS,
    SYSTEM_RULES,
    TALES,
    THINGS,
    UNKNOWN,
    WHY,
)

Message = dict[str, str]
Dialogue = list[Message]
Pair = tuple[str, str]

_BAD = re.compile(
    r"https?:|www\.|@|\d{5,}|\b(fuck\w*|shit\w*|bitch\w*|cunt|dick|porn\w*|sex\w*|rape\w*|nazi\w*"
    r"|hitler|nigg\w*|fag\w*|slut\w*|whore\w*|damn\w*|ass|asshole|suicid\w*|kill\w*|penis|boobs?"
    r"|trump|drugs?|gun|guns|naked|crap|hell)\b",
    re.IGNORECASE,
)
_SPELLING = {
    "i": "I", "im": "I'm", "i'm": "I'm", "ive": "I've", "i've": "I've", "i'll": "I'll",
    "i'd": "I'd", "dont": "don't", "didnt": "didn't", "doesnt": "doesn't", "cant": "can't",
    "isnt": "isn't", "wasnt": "wasn't", "havent": "haven't", "couldnt": "couldn't",
    "wouldnt": "wouldn't", "thats": "that's", "whats": "what's", "youre": "you're",
    "theyre": "they're", "u": "you", "ur": "your", "r": "are", "thx": "thanks", "ya": "you",
    "gonna": "going to", "wanna": "want to", "lol": "haha", "cuz": "because", "tho": "though",
    "pls": "please", "yall": "you all", "alot": "a lot", "ok": "okay", "idk": "I don't know",
}  # fmt: skip
_FOLD = str.maketrans({"\u2019": "'", "\u2018": "'", "\u201c": '"', "\u201d": '"', "\u2026": "..."})


def tidy(text: str) -> str:
    """Returns ``text`` with one style of quotes, spelling and sentence ends, or "" if unfit."""
    text = re.sub(r"\s+", " ", text.translate(_FOLD)).strip()
    if not text or not text.isascii() or _BAD.search(text):
        return ""
    text = re.sub(r"[A-Za-z']+", lambda m: _SPELLING.get(m[0].lower(), m[0]), text)
    text = re.sub(r"([!?.]){3,}", r"\1", text)
    text = text[0].upper() + text[1:]
    return text if text[-1] in '.!?")' else text + "."


def _find(package: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    return Path(spec.origin).parent if spec and spec.origin else None


def _chat(turns: list[str], system: str | None = None) -> Dialogue:
    head = [{"role": "system", "content": system}] if system else []
    roles = ("user", "assistant")
    return head + [{"role": roles[i % 2], "content": t} for i, t in enumerate(turns)]


def chitchat(rng: random.Random) -> Iterator[Dialogue]:
    """Yields the two-speaker conversations of ``chitchat-dataset``."""
    folder = _find("chitchat_dataset")
    if folder is None:
        return
    data = json.loads((folder / "dataset.json").read_text(encoding="utf-8"))
    for talk in data.values():
        turns, last = [], None
        for group in talk["messages"]:
            parts = [tidy(m["text"]) for m in group]
            if not all(parts):
                break
            if group[0]["sender"] == last:
                turns[-1] += " " + " ".join(parts)
            else:
                turns.append(" ".join(parts))
            last = group[0]["sender"]
        if len(turns) < 4 or sum(map(len, turns)) < 100:
            continue
        topic = tidy(talk.get("prompt", ""))
        system = "You are friendly and like to chat." + (f" Topic: {topic}" if topic else "")
        yield _chat(turns, rng.choices((None, system, _system(rng)), (5, 3, 2))[0])


def chatterbot(rng: random.Random) -> Iterator[Dialogue]:
    """Yields the English conversations of ``chatterbot-corpus``, several to a dialogue."""
    folder = _find("chatterbot_corpus")
    if folder is None:
        return
    import yaml

    talks = []
    for path in sorted((folder / "data" / "english").glob("*.yml")):
        if path.stem in {"coding", "tech_support", "politics", "movies", "gossip"}:
            continue
        for talk in yaml.safe_load(path.read_text(encoding="utf-8"))["conversations"]:
            lines = [tidy(str(line)) for line in talk]
            if path.stem == "emotion":  # one question and several answers to it
                talks += [[lines[0], line] for line in lines[1:] if lines[0] and line]
            elif all(lines) and len(lines) > 1:
                talks.append(lines[: len(lines) // 2 * 2])
    rng.shuffle(talks)
    while talks:
        count = rng.randint(1, 4)
        yield _chat([line for talk in talks[:count] for line in talk], _system(rng))
        talks = talks[count:]


def extra_jsonl(paths: list[Path]) -> Iterator[Dialogue]:
    """Yields records of JSON lines with ``text``, ``question`` + ``answer``, or ``messages``."""
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if "messages" in row:
                yield row["messages"]
            elif "question" in row and "answer" in row:
                yield _chat([row["question"], row["answer"]])
            elif "text" in row:
                yield [{"role": "text", "content": row["text"]}]


def _system(rng: random.Random) -> str | None:
    if rng.random() < 0.3:
        return None
    rules = rng.sample(SYSTEM_RULES, rng.choice((0, 1, 2, 3, 5, 8, 12)))
    return " ".join([rng.choice(SYSTEM_PROMPTS), *rules])


def _a(word: str) -> str:
    return ("an " if word[0] in "aeiou" else "a ") + word


def _ask(rng: random.Random, question: str) -> str:
    """Returns ``question`` in one of several ways of asking it."""
    low = question[0].lower() + question[1:]
    kind = rng.random()
    if kind < 0.55:
        return question
    if kind < 0.7:
        start = rng.choice(("Please tell me: ", "I have a question. ", "Hello! ", "Okay. "))
        return start + question
    if kind < 0.85:
        return low.rstrip("?") if rng.random() < 0.5 else low
    return question + rng.choice((" Please tell me.", " I want to know.", " I forgot."))


def _say(rng: random.Random, answer: str) -> str:
    start = rng.choice(("That is a good question. ", "Of course. ", "Yes, I know that. "))
    return (start if rng.random() < 0.12 else "") + answer


def _fact(rng: random.Random) -> list[Pair]:
    """Returns one question with its answer, and perhaps a question that follows from it."""
    topic = rng.randrange(11)
    if topic <= 1:
        name, legs, sound, home, food, young = rng.choice(ANIMALS)
        facts = [
            (f"What does {_a(name)} eat?", f"{_a(name).capitalize()} eats {food}."),
            (f"Where does {_a(name)} live?", f"{_a(name).capitalize()} lives {home}."),
            (f"What sound does {_a(name)} make?", f"{_a(name).capitalize()} {sound}."),
            (f"How many legs does {_a(name)} have?", f"{_a(name).capitalize()} has {legs} legs."),
            (f"What is a young {name} called?", f"A young {name} is called {_a(young)}."),
        ]
        follow = [("And what does it eat?", f"It eats {food}."),
                  ("And where does it live?", f"It lives {home}."),
                  ("What sound does it make?", f"It {sound}."),
                  ("How many legs does it have?", f"It has {legs} legs.")]  # fmt: skip
        first = rng.randrange(5)
        rest = follow[:first] + follow[first + 1 :]
        return [facts[first], *rng.sample(rest, rng.randint(0, 2))]
    if topic == 2:
        country, city, place = rng.choice(CAPITALS)
        return [(f"What is the capital of {country}?", f"The capital of {country} is {city}."),
                (f"Where is {country}?", f"{country} is in {place}."),
                ][: rng.randint(1, 2)]  # fmt: skip
    if topic == 3:
        food, colour, taste, kind = rng.choice(FOODS)
        pairs = [(f"What colour is {_a(food)}?", f"{_a(food).capitalize()} is {colour}."),
                 (f"How does {_a(food)} taste?", f"{_a(food).capitalize()} tastes {taste}."),
                 (f"Is {_a(food)} a fruit?",
                  f"Yes, {_a(food)} is a fruit." if kind == "fruit"
                  else f"No, {_a(food)} is a {kind}.")]  # fmt: skip
        return rng.sample(pairs, rng.randint(1, 2))
    if topic == 4:
        a, b = rng.randint(1, 10), rng.randint(1, 10)
        if rng.random() < 0.3:
            return [(f"Count from {a} to {a + 5}.",
                     ", ".join(str(a + i) for i in range(6)) + ".")]  # fmt: skip
        if rng.random() < 0.3 and a > b:
            return [(f"What is {a} minus {b}?", f"{a} minus {b} is {a - b}.")]
        return [(f"What is {a} plus {b}?", f"{a} plus {b} is {a + b}.")]
    if topic == 5:
        return [rng.choice(WHY)]
    if topic == 6:
        word, meaning = rng.choice(DEFINITIONS)
        return [(f"What is {_a(word)}?", f"{_a(word).capitalize()} is {meaning}.")]
    if topic == 7:
        word, other = rng.choice(OPPOSITES)
        word, other = (word, other) if rng.random() < 0.5 else (other, word)
        return [(f"What is the opposite of {word}?", f"The opposite of {word} is {other}.")]
    if topic == 8:
        job, work = rng.choice(JOBS)
        return [(f"What does {_a(job)} do?", f"{_a(job).capitalize()} {work}.")]
    if topic == 9:
        return [rng.choice(UNKNOWN)]
    task, steps = rng.choice(HOW_TO)
    words = ("First,", "Then", "After that,", "Finally,")
    return [(f"How do I {task}?", " ".join(f"{w} {s}." for w, s in zip(words, steps, strict=True)))]


def tale(rng: random.Random, hero: str | None = None) -> str:
    """Returns a short tale: the sentences of one plot, each in one of its wordings."""
    animals = [a[0] for a in ANIMALS]
    hero = hero or rng.choice([*animals, "boy", "girl"])
    male = rng.random() < 0.5 if hero in animals else hero == "boy"
    he, his, him = ("he", "his", "him") if male else ("she", "her", "her")
    name = rng.choice(NAMES[he])
    friend = rng.choice([n for n in NAMES["any"] if n != name])
    other = rng.choice([a for a in animals if a != hero])
    thing = rng.choice(THINGS)
    words = {
        "hero": hero, "name": name, "friend": friend, "other": other, "thing": thing[0],
        "colour": rng.choice(("red", "blue", "green", "yellow", "white", "brown")),
        "where": thing[1], "he": he, "He": he.capitalize(), "his": his, "him": him,
        "adj": rng.choice(("little", "small", "young", "brave", "kind", "clever", "shy", "happy")),
        "place": rng.choice(("a green forest", "a small village", "a house by the sea",
                             "a quiet valley", "an old farm", "a town near the hills")),
        "day": rng.choice(("One day", "One morning", "One cold morning", "One sunny day")),
        "food": rng.choice(("bread", "apples", "soup", "a cake", "berries", "warm milk")),
    }  # fmt: skip
    text = " ".join(rng.choice(line) for line in rng.choice(TALES)).format_map(words)
    return re.sub(r"\ba ([aeiou])", r"an \1", re.sub(r"\bA ([aeiou])", r"An \1", text))


def _tale_pair(rng: random.Random) -> list[Pair]:
    hero = rng.choice([a[0] for a in ANIMALS] + ["boy", "girl"])
    ask = rng.choice(("Tell me a story about {}.", "Please tell me a story about {}.",
                      "Can you tell me a story about {}?", "Write a short story about {}.",
                      "I want a story about {}."))  # fmt: skip
    pairs = [(ask.format(_a(hero)), tale(rng, hero))]
    if rng.random() < 0.3:
        pairs.append(("Tell me another story.", tale(rng)))
    return pairs


def _named(rng: random.Random) -> list[Pair]:
    """Returns a talk in which the answer to a later question is a name given before."""
    name = rng.choice(NAMES["any"])
    first = rng.choice((f"My name is {name}.", f"Hello, I am {name}.", f"Hi! My name is {name}."))
    pairs = [(first, f"Hello {name}! " + rng.choice(("It is nice to meet you.",
                                                     "How can I help you today?")))]  # fmt: skip
    for _ in range(rng.randint(0, 3)):
        pairs += _fact(rng)
    return [*pairs, (rng.choice(("What is my name?", "Do you remember my name?", "Who am I?")),
                     f"Your name is {name}.")]  # fmt: skip


def _poem(rng: random.Random) -> list[Pair]:
    topic, text = rng.choice(POEMS)
    return [(rng.choice((f"Write a poem about {topic}.", f"Tell me a poem about {topic}.")), text)]


def templates(rng: random.Random, count: int) -> Iterator[Dialogue]:
    """Yields ``count`` dialogues and tales of this module's own words."""
    kinds: list[Callable[[random.Random], list[Pair]]]
    kinds = [_fact, _tale_pair, _named, _poem, lambda r: [r.choice(SMALL_TALK)]]
    for _ in range(count):
        if rng.random() < 0.08:
            yield [{"role": "text", "content": tale(rng)}]
            continue
        turns: list[str] = []
        for _ in range(rng.choice((1, 1, 2, 3, 4, 6, 8))):
            kind = rng.choices(kinds, (54, 18, 5, 3, 20))[0]
            for question, answer in kind(rng):
                if kind is _fact:
                    turns += [_ask(rng, question), _say(rng, answer)]
                else:
                    turns += [question if rng.random() < 0.9 else question.lower(), answer]
        yield _chat(turns, _system(rng))
