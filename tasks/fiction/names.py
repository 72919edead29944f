"""Words of a fictional world: all the parts that its names and attributes are made of.

A name has two parts: one of ROOTS, an invented word of two syllables, and one of the 512
phrases of the entity's kind. A world deals each pair to one entity, so no two entities of a
kind share a name, and near misses share a half:

    person    Jabrel Karvosk                    phrase, then root
    town      Karvosk Upper Mill                root, then phrase
    film      The Silent Lantern of Karvosk     phrase, then root
    novel     Letters to Karvosk                phrase, then root
    company   Karvosk Lantern Company           root, then phrase
    school    Karvosk College of Optics         root, then phrase

Roots and given names are syllables set together, none of them an English word or the beginning
of another root; the lists below are the project's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

KINDS = ("person", "town", "film", "novel", "company", "school")
ROOT_BITS, PHRASE_BITS = 12, 9

PHRASE_FIRST = {"person", "film", "novel"}
"""Kinds whose names begin with the phrase."""

_ADJECTIVES = (
    *("Silent", "Gilded", "Broken", "Hidden", "Crimson", "Distant", "Patient", "Hollow"),
    *("Burning", "Frozen", "Gentle", "Crooked", "Second", "Wandering", "Painted", "Nameless"),
)
_THINGS = (
    *("Lantern", "Orchard", "Compass", "Harvest", "Mirror", "Staircase", "Falcon", "Garden"),
    *("Bell", "Ferry", "Clock", "Anchor", "Violin", "Window", "Tower", "Carpet"),
    *("Needle", "Island", "Kettle", "Ladder", "Meadow", "Candle", "Saddle", "Ribbon"),
    *("Bridge", "Feather", "Hammer", "Basket", "Chimney", "Barrel", "Pebble", "Copper"),
)
_WARES = (
    *("Lantern", "Paper", "Glass", "Kettle", "Rope", "Compass", "Button", "Carpet"),
    *("Candle", "Barrel", "Ribbon", "Copper", "Timber", "Cotton", "Ferry", "Pepper"),
    *("Mirror", "Saddle", "Anchor", "Marble", "Velvet", "Needle", "Basket", "Violin"),
    *("Biscuit", "Walnut", "Silver", "Printing", "Railway", "Harbour", "Mining", "Salt"),
    *("Leather", "Cement", "Umbrella", "Bicycle", "Piano", "Camera", "Ladder", "Pencil"),
    *("Brick", "Linen", "Cider", "Honey", "Tea", "Cocoa", "Mustard", "Vinegar"),
    *("Engine", "Clock", "Bell", "Carriage", "Balloon", "Furnace", "Windmill", "Canal"),
    *("Feather", "Amber", "Coral", "Ivory", "Porcelain", "Hammer", "Chimney", "Toy"),
)
_FIELDS = (
    *("Optics", "Music", "Law", "Medicine", "Botany", "Geology", "Drama", "Painting"),
    *("Sculpture", "Navigation", "Astronomy", "Chemistry", "Physics", "History", "Logic"),
    *("Rhetoric", "Commerce", "Design", "Printing", "Weaving", "Carpentry", "Forestry"),
    *("Agriculture", "Engineering", "Architecture", "Languages", "Poetry", "Dance", "Film"),
    *("Cookery", "Mining", "Surveying", "Statistics", "Economics", "Philosophy", "Theology"),
    *("Anatomy", "Pharmacy", "Nursing", "Geography", "Oceanography", "Archaeology", "Ethics"),
    *("Mathematics", "Mechanics", "Electricity", "Textiles", "Ceramics", "Jewellery", "Letters"),
    *(
        "Journalism",
        "Photography",
        "Acoustics",
        "Meteorology",
        "Zoology",
        "Fisheries",
        "Hydraulics",
    ),
    *(
        "Metallurgy",
        "Aviation",
        "Librarianship",
        "Education",
        "Diplomacy",
        "Husbandry",
        "Gardening",
    ),
)


def _joined(*lists: Sequence[str]) -> tuple[str, ...]:
    return tuple("".join(parts) for parts in product(*lists))


ROOTS = _joined(
    ("B", "Br", "D", "Dr", "F", "Gr", "H", "K", "L", "M", "N", "P", "S", "T", "V", "Z"),
    ("a", "e", "i", "o"),
    ("lk", "nd", "rv", "st", "lm", "rt", "mb", "nv", "sk", "rn", "ld", "z", "v", "l", "r", "nt"),
    ("uth", "osk", "ulm", "av"),
)
GIVEN = _joined(
    (
        *("Ja", "Je", "Jo", "Li", "Lo", "Ma", "Mi", "Na", "Ne", "Ni", "No", "Pe", "Ra", "Re"),
        *("Ri", "Ro", "Sa", "Se", "Si", "Ta", "Te", "Ti", "Va", "Ve", "Vi", "Wi", "Ya", "Yo"),
        *("Za", "Ze", "Zi", "Zo"),
    ),
    (
        *("brel", "dwen", "fenn", "ghan", "jelle", "kovi", "lorra", "mund"),
        *("nquil", "pheo", "quen", "rbeth", "stova", "thiel", "vonna", "xabe"),
    ),
)
PHRASES: dict[str, tuple[str, ...]] = {
    "person": GIVEN,
    "town": _joined(
        (
            *("Upper ", "Lower ", "North ", "South ", "East ", "West ", "Old ", "New "),
            *("Great ", "Little ", "Long ", "High ", "Far ", "Green ", "White ", "Black "),
        ),
        (
            *("Mill", "Bridge", "Ford", "Harbour", "Hill", "Cross", "Market", "Gate"),
            *("Wells", "Bay", "Heath", "Moor", "Barn", "Point", "Falls", "Marsh"),
            *("Wood", "Vale", "Ridge", "Quay", "Abbey", "Lock", "Common", "Grove"),
            *("Orchard", "Meadow", "Crag", "Haven", "Bank", "Pass", "Spring", "Dale"),
        ),
    ),
    "film": tuple(f"The {a} {b} of" for a, b in product(_ADJECTIVES, _THINGS)),
    "novel": tuple(
        f"{a} {b}"
        for a, b in product(
            (
                *("Letters", "Songs", "Lessons", "Winters", "Promises", "Rumours", "Shadows"),
                *("Questions", "Summers", "Journeys", "Stories", "Secrets", "Mornings", "Debts"),
                *("Prayers", "Voices", "Dreams", "Errands", "Farewells", "Harvests", "Echoes"),
                *("Rivers", "Storms", "Strangers", "Teachers", "Bargains", "Riddles", "Roads"),
                *("Notes", "Whispers", "Gifts", "Quarrels"),
            ),
            (
                *("from", "for", "to", "about", "before", "after", "beyond", "without"),
                *("against", "beneath", "beside", "within", "near", "above", "toward", "across"),
            ),
        )
    ),
    "company": tuple(
        f"{a} {b}"
        for a, b in product(
            _WARES,
            ("Company", "Works", "Trust", "Brothers", "Union", "Partners", "Group", "House"),
        )
    ),
    "school": tuple(
        f"{b} of {a}"
        for a, b in product(
            _FIELDS,
            (
                "College",
                "Academy",
                "Institute",
                "School",
                "University",
                "Hall",
                "Lyceum",
                "Seminary",
            ),
        )
    ),
}

VALUES: dict[str, tuple[str, ...]] = {
    "births": tuple(map(str, range(1891, 1931))),
    "settlements": tuple(map(str, range(1101, 1700))),
    "releases": tuple(map(str, range(1966, 1991))),
    "editions": tuple(map(str, range(1951, 1966))),
    "foundings": tuple(map(str, range(1951, 1981))),
    "charters": tuple(map(str, range(1701, 1890))),
    "minutes": tuple(map(str, range(71, 199))),
    "pages": tuple(map(str, range(121, 890))),
    "provinces": ROOTS,
    "heroes": GIVEN,
    "instruments": (
        *("bassoon", "harp", "cello", "trumpet", "oboe", "accordion", "mandolin", "flute"),
        *("banjo", "viola", "tuba", "zither", "clarinet", "organ", "lute", "xylophone"),
        *("trombone", "piccolo", "bagpipes", "ukulele", "harpsichord", "saxophone", "cornet"),
        *("dulcimer", "timpani", "recorder", "sitar", "concertina", "double bass", "celesta"),
        *("marimba", "hurdy-gurdy"),
    ),
    "collections": (
        *("antique maps", "pocket watches", "sea shells", "theatre posters", "old keys"),
        *("glass marbles", "postage stamps", "pressed flowers", "tin soldiers", "bird feathers"),
        *("chess sets", "music boxes", "fossils", "meteorites", "umbrella handles", "snow globes"),
        *("bottle caps", "matchboxes", "railway tickets", "porcelain cats", "brass buttons"),
        *("puppets", "fountain pens", "typewriters", "dried mushrooms", "lace fans", "kites"),
        *("butterflies", "door knockers", "wooden spoons", "ship models", "weather vanes"),
    ),
    "specialities": (
        *("blue cheese", "woollen blankets", "smoked eel", "plum brandy", "stained glass"),
        *("rye bread", "clay pipes", "pear cider", "carved spoons", "goat leather", "sea salt"),
        *("beeswax", "silk ribbons", "church bells", "ginger biscuits", "roof slates", "saffron"),
        *("wicker chairs", "pickled herring", "poppy seeds", "iron stoves", "linen sails"),
        *("dried apricots", "horn combs", "painted tiles", "walnut oil", "quince jelly"),
        *("fishing nets", "copper pans", "felt hats", "paper lanterns", "garden gnomes"),
    ),
    "goods": (
        *("spectacles", "bookcases", "thermometers", "sewing machines", "wallpaper", "cough syrup"),
        *("lawn mowers", "tennis rackets", "parachutes", "toothbrushes", "barometers", "shoelaces"),
        *("alarm clocks", "rocking horses", "gramophones", "lightning rods", "garden hoses"),
        *("light bulbs", "steam irons", "diving suits", "cash registers", "roller skates"),
        *(
            "ink bottles",
            "fire hydrants",
            "telescopes",
            "coffee mills",
            "street lamps",
            "elevators",
        ),
        *("fishing rods", "padlocks", "hot-air balloons", "staplers"),
    ),
    "emblems": (
        *("heron", "badger", "stag", "stoat", "raven", "salmon", "hedgehog", "swan"),
        *("lynx", "falcon", "tortoise", "wolf", "hare", "kingfisher", "beaver", "ram"),
        *("crane", "squirrel", "viper", "bison", "pelican", "mole", "toad", "magpie"),
        *("walrus", "weasel", "lobster", "moth", "peacock", "donkey", "seahorse", "wren"),
    ),
}
"""What attributes can be. The years of the kinds follow one another, so that every founder and
author is grown up and every film is younger than its novel."""
