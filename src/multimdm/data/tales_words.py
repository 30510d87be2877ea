"""The grammar of the built-in corpus: someone goes somewhere, finds something, and meets an animal.

Between sentences at most these variables are alive: hero and place; hero and object; object, animal and event, each
time together with the gender of the hero. Names are needed until the third sentence, pronouns until the last. The
event, seen in the third and fourth sentence, decides on feelings and on whether the object comes home.
"""

from multimdm.data.tales_grammar import Grammar, Sentence, article, articles, by, words

_GIRLS = (
    "Mia, Lily, Anna, Zoe, Emma, Nora, Ruby, Clara, Ella, Rosa, Ivy, Lucy, Maya, Tina, Sara, Julia, Hana, Alma, Greta"
)
_BOYS = "Tom, Ben, Max, Leo, Sam, Jack, Finn, Oscar, Noah, Hugo, Paul, Otto, Felix, Omar, Luis, Adam, Peter, Ravi, Theo"
_FEATURES = {
    "beach": "dunes, waves, rocks, boats",
    "forest": "pines, cabin, stream, cave",
    "farm": "barn, fence, wagon, pond",
    "park": "swings, fountain, bench, pond",
    "market": "stalls, carts, well, inn",
    "garden": "roses, gate, pond, bench",
    "castle": "tower, throne, gate, stairs",
    "library": "shelves, desk, stairs, clock",
    "school": "desk, swings, shelves, fence",
    "harbor": "boats, lighthouse, rocks, inn",
    "village": "well, bridge, inn, tower",
    "river": "bridge, reeds, rocks, boats",
    "mountain": "cliff, pines, cave, cabin",
    "island": "palms, waves, cave, lighthouse",
    "museum": "statue, clock, stairs, throne",
    "desert": "cactus, tent, dunes, palms",
    "station": "train, clock, bench, bridge",
    "orchard": "ladder, wagon, fence, barn",
    "meadow": "stream, roses, fence, wagon",
    "lake": "boats, reeds, cabin, rocks",
    "circus": "tent, lions, stage, wagon",
    "theater": "stage, curtain, stairs, statue",
    "camp": "tent, fire, cabin, stream",
    "zoo": "lions, fountain, gate, palms",
}
_OBJECT = words(
    "kite, ball, drum, book, hat, umbrella, scarf, bell, key, map, lamp, coin, ring, apron, whistle, flute, box, boot, "
    "spoon, cup, envelope, feather, doll, puppet, ribbon, basket, marble, teapot, lantern, necklace, mirror, crown"
)
_BIRDS = ("crow", "owl", "duck", "goose", "parrot", "hen")
_ANIMAL = words(
    "dog, cat, goat, fox, monkey, crow, rabbit, squirrel, owl, duck, pony, otter, goose, puppy, parrot, mouse, pig, hen"
)
_BAD = "greedy, hungry, sneaky, naughty, angry, rude, wild, clever, impatient, noisy"
_GOOD = "friendly, gentle, kind, shy, curious, eager, silly, lonely, sleepy, little"
_COLORS = "red, shiny, blue, golden, wooden, yellow, silver, ancient, purple, green, round, heavy, bright"
_EITHER = "tiny, old, white, huge, strange, ugly, orange, pretty, enormous, dusty, odd, black, striped, elegant, brown"


def _with_articles(*lists: str) -> str:
    """The lists as one, with "a" or "an" before each adjective."""
    return ", ".join(f"{article(word)} {word}" for word in ", ".join(lists).split(", "))


_VARIABLES = {
    "gender": words("girl, boy"),
    "hero": by("gender", {"girl": _GIRLS, "boy": _BOYS}),
    "place": words(", ".join(_FEATURES)),
    "object": _OBJECT,
    "animal": _ANIMAL,
    "event": words("returned, shared, lost, given"),
}

_AGREEING = {
    "he": by("gender", {"girl": "she", "boy": "he"}),
    "him": by("gender", {"girl": "her", "boy": "him"}),
    "his": by("gender", {"girl": "her", "boy": "his"}),
    "feature": by("place", _FEATURES),
    "a": articles("object", _OBJECT.phrases),
    "moved": by(
        "animal",
        {
            animal: "flew, hopped, swooped, raced" if animal in _BIRDS else "ran, crept, trotted, jumped, raced"
            for animal in _ANIMAL.phrases
        },
    ),
    "greedy": by(
        "event",
        {
            "returned": _with_articles(_BAD, _EITHER),
            "shared": _with_articles(_GOOD, _EITHER),
            "lost": _with_articles(_BAD, _EITHER),
            "given": _with_articles(_GOOD, _EITHER),
        },
    ),
    "glad": by(
        "event",
        {
            "returned": "glad, lucky, brave, happy, proud, clever",
            "shared": "happy, glad, lucky, calm, silly, good",
            "lost": "sad, angry, lonely, upset, silly, sleepy",
            "given": "proud, kind, calm, happy, good, glad",
        },
    ),
    "gladly": by(
        "event",
        {
            "returned": "quickly, happily, proudly, bravely, gladly, calmly, quietly",
            "shared": "happily, gladly, slowly, quietly, calmly, proudly, quickly",
            "lost": "sadly, slowly, angrily, quietly, silently, alone",
            "given": "gladly, proudly, calmly, happily, quietly, slowly, bravely",
        },
    ),
    "smiled": by(
        "event",
        {
            "returned": "laughed, smiled, rested, danced, waved",
            "shared": "smiled, sang, danced, laughed, waved",
            "lost": "cried, sighed, waited, rested, shouted",
            "given": "smiled, waved, sang, rested, danced",
        },
    ),
}

_FREE = {
    "sunny": words("sunny, rainy, windy, cold, warm, cloudy, foggy, quiet, lovely, bright, strange"),
    "morning": words("morning, day, afternoon, evening"),
    "summer": words("summer, week, winter, spring, autumn"),
    "walked": words("went, walked, ran, hurried, cycled, skipped, wandered, marched, raced, came"),
    "visited": words("visited, explored, painted"),
    "loved": words("loved, liked, wanted, went, hoped"),
    "play": words("play, draw, sing, read, dance, rest, hide, sleep, help, paint"),
    "uncle": words("mother, brother, father, sister, uncle, friend, aunt, cousin, neighbor, teacher"),
    "found": words("found, saw, spotted, noticed, discovered, got, grabbed"),
    "looked": words("looked, searched, walked, sat, waited, rested, played, jumped"),
    "near": words("near, behind, beside, by, next to, close to"),
    "beside": words("behind, near, beside, by"),
    "red": words(_with_articles(_COLORS, _EITHER)),
    "then": words("then, soon, suddenly, later"),
    "rested": words("rested, slept, sang, waited, danced, played, read"),
    "stole": words("stole, grabbed, snatched, took, hid"),
    "held": words("held, cleaned, admired, shook, painted, carried, examined"),
    "showed": words("showed, brought, carried, took"),
    "liked": words("liked, sniffed, admired, touched, examined, wanted"),
    "watched": words("watched, waited, slept, danced, rested, sang"),
    "shouted": words("shouted, cried, begged, ran, jumped"),
    "kept": words("kept, hid, broke, lost, left"),
    "chased": words("chased, followed, scared, begged, found, caught"),
    "away": words("quickly, quietly, proudly, slowly, happily, calmly"),
    "saved": words("saved, rescued, grabbed, took, got, snatched"),
    "dropped": words("dropped, returned, left"),
    "cheese": words("some cheese, an apple, some bread, a carrot, an egg, a cookie"),
    "clean": words("clean, carry, wash, paint, guard, hide, hold"),
    "hold": words("hold, carry, guard, wash, paint, clean, hide"),
    "played": words("played, danced, marched, ran, sang"),
    "dark": words("dark, dinner, sunset, bedtime, evening, autumn"),
    "gave": words("gave, offered, handed"),
    "bought": words("bought, made, gave, brought, found, offered"),
    "felt": words("felt, was, looked"),
    "told": words("told, hugged, found, helped, followed"),
    "under": words("under, near, behind, beside, by"),
    "bed": words("bed, pillow, chair, window, door, desk, clock"),
    "put": words("put, hid, kept, left, saw, found"),
}

_SENTENCES = (
    Sentence(
        {
            (): {
                "one {sunny} {morning} {hero} {walked} to the {place}": 4,
                "{hero} {walked} to the {place} one {sunny} {morning}": 3,
                "{hero} {walked} to the {place} with {his} {uncle}": 3,
                "{hero} {loved} to {play} {beside} the {place}": 2,
                "{hero} and {his} {uncle} {visited} the {place}": 1,
                "last {summer} {hero} {visited} the {place}": 1,
            }
        }
    ),
    Sentence(
        {
            (): {
                "{he} {found} {red} {object} {near} the {feature}": 4,
                "{near} the {feature} {he} {found} {red} {object}": 4,
                "{he} {looked} {beside} the {feature} and {found} {a} {object}": 3,
            }
        }
    ),
    Sentence(
        {
            ("returned", "lost"): {
                "while {hero} {rested} {greedy} {animal} {stole} the {object}": 3,
                "{then} {greedy} {animal} {stole} the {object} from {hero}": 2,
                "{greedy} {animal} {moved} to {hero} and {stole} it": 3,
            },
            ("shared", "given"): {
                "{hero} {held} the {object} while {greedy} {animal} {watched}": 3,
                "{hero} {showed} the {object} to {greedy} {animal}": 2,
                "{greedy} {animal} {moved} to {hero} and {liked} it": 3,
            },
        },
        given="event",
    ),
    Sentence(
        {
            ("returned",): {
                "{he} {chased} the {animal} and {saved} the {object}": 3,
                "{he} {gladly} {saved} the {object} from the {animal}": 3,
                "for {cheese} the {animal} {dropped} the {object}": 3,
                "{then} the {animal} {dropped} it": 1,
            },
            ("shared",): {
                "the {animal} {gladly} helped {him} {clean} the {object}": 3,
                "{he} {gladly} let the {animal} {hold} the {object}": 3,
                "they {played} {gladly} with the {object} until {dark}": 3,
            },
            ("lost",): {
                "{he} {shouted} but the {animal} {kept} the {object}": 3,
                "the {animal} {moved} away {away} with the {object}": 3,
                "{he} {chased} the {animal} but lost the {object}": 1,
            },
            ("given",): {
                "{he} {gladly} {gave} the {object} to the {animal}": 3,
                "{he} {gladly} let the {animal} keep the {object}": 2,
            },
        },
        given="event",
    ),
    Sentence(
        {
            ("returned", "shared", "lost", "given"): {
                "{he} and {his} {uncle} {walked} home {gladly}": 3,
                "{he} {felt} {glad} and {told} {his} {uncle}": 2,
                "{he} {smiled} {gladly}": 1,
            },
            ("returned", "shared"): {
                "{his} {uncle} {put} the {object} {under} the {bed}": 5,
                "{he} {walked} home {gladly} with the {object}": 2,
            },
            ("lost", "given"): {
                "{then} {his} {uncle} {bought} {him} {red} {object}": 5,
                "{he} {walked} home {gladly} without the {object}": 2,
            },
        },
        given="event",
    ),
)

DEFAULT = Grammar(_VARIABLES, _AGREEING | _FREE, _SENTENCES)
