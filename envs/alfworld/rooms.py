"""What rooms are like: which furniture stands in them, and which things lie where.

The tables state facts about ALFWorld's released games, counted over their rooms and rounded: how
often a kind of receptacle occurs in a kind of room and in what number, where things of a kind are
found, what a receptacle can hold, what can be done to a thing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = [
    "ALWAYS_OPENABLE",
    "CAN_CONTAIN",
    "DESTINATIONS",
    "FLAGS",
    "MEANS",
    "OFTEN_OPENABLE",
    "ROOMS",
    "TASK_TYPES",
    "Furniture",
    "Room",
    "RoomKind",
    "lower",
]

RoomKind = Literal["kitchen", "living", "bedroom", "bathroom"]

#: Task types in the order of ALFWorld's numbers (1 to 6).
TASK_TYPES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)


@dataclass(frozen=True, slots=True)
class Furniture:
    """How a kind of receptacle occurs in full-size rooms.

    Attributes:
        kind: Its name, as identifiers write it.
        share: Share of the rooms that have it.
        low: Smallest number in those.
        high: Largest number.
    """

    kind: str
    share: float
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Room:
    """A kind of room.

    Attributes:
        first: Number of its first room; rooms are numbered as in the releases' scenes.
        furniture: Full-size rooms.
        needed: What every small room has.
        things: Kind of thing to the kinds of receptacle it lies in, with weights.
        lamp: Share of the rooms with a desk lamp.
        stands: Where a desk lamp may stand.
    """

    first: int
    furniture: tuple[Furniture, ...]
    needed: tuple[str, ...]
    things: dict[str, dict[str, int]]
    lamp: float
    stands: tuple[str, ...]


def _furniture(table: str) -> tuple[Furniture, ...]:
    rows = [row.split() for row in table.strip().splitlines()]
    return tuple(Furniture(k, float(share), int(low), int(high)) for k, share, low, high in rows)


def _weights(table: str) -> dict[str, dict[str, int]]:
    found = {}
    for row in table.strip().splitlines():
        kind, _, rest = row.strip().partition(": ")
        words = rest.split()
        found[kind] = dict(zip(words[::2], map(int, words[1::2]), strict=True))
    return found


def _lists(table: str) -> dict[str, tuple[str, ...]]:
    rows = [row.strip().partition(": ") for row in table.strip().splitlines()]
    return {kind: tuple(rest.split()) for kind, _, rest in rows}


ROOMS: dict[RoomKind, Room] = {
    "kitchen": Room(
        first=1,
        furniture=_furniture("""
            CounterTop 1 1 4
            StoveBurner 1 4 4
            CoffeeMachine 1 1 1
            GarbageCan 1 1 1
            Cabinet 1 2 24
            Toaster 1 1 1
            Microwave 1 1 1
            Drawer 0.97 1 12
            DiningTable 0.55 1 2
            SinkBasin 1 1 1
            Fridge 1 1 1
            Shelf 0.2 3 3
            SideTable 0.1 1 1
            Safe 0.04 1 1
        """),
        needed=("CounterTop", "Fridge", "Microwave", "SinkBasin"),
        things=_weights("""
            Apple: CounterTop 3 Fridge 2 DiningTable 2 Microwave 1 GarbageCan 1 SinkBasin 1
            Book: CounterTop 6 Cabinet 2 DiningTable 1 Shelf 1 Drawer 1
            Bowl: Cabinet 3 Fridge 2 CounterTop 2 DiningTable 2 SinkBasin 1 Microwave 1
            Bread: CounterTop 6 DiningTable 3 Fridge 1
            ButterKnife: CounterTop 6 DiningTable 3 Drawer 1 SinkBasin 1
            CellPhone: Drawer 5 CounterTop 3 DiningTable 2
            CreditCard: CounterTop 4 Drawer 4 Shelf 2
            Cup: Cabinet 2 Fridge 2 CounterTop 2 DiningTable 1 SinkBasin 1 Microwave 1
            DishSponge: CounterTop 2 Cabinet 2 Drawer 2 DiningTable 1 SinkBasin 1 GarbageCan 1
            Egg: Fridge 3 CounterTop 3 GarbageCan 1 SinkBasin 1 Microwave 1 DiningTable 1
            Fork: CounterTop 4 DiningTable 3 Drawer 2 SinkBasin 1
            Glassbottle: Cabinet 3 CounterTop 3 DiningTable 1 SinkBasin 1 Fridge 1 GarbageCan 1
            HousePlant: CounterTop 8 DiningTable 2
            Kettle: StoveBurner 4 Cabinet 3 CounterTop 3 DiningTable 1
            Knife: CounterTop 5 DiningTable 2 Drawer 2 SinkBasin 1
            Ladle: CounterTop 4 Cabinet 2 Drawer 2 DiningTable 2
            Lettuce: CounterTop 4 DiningTable 3 Fridge 2 SinkBasin 1
            Mug: CounterTop 3 CoffeeMachine 2 Cabinet 2 Fridge 1 DiningTable 1 Microwave 1
            Pan: StoveBurner 5 CounterTop 3 Cabinet 1 DiningTable 1 Fridge 1
            Pen: CounterTop 5 DiningTable 3 GarbageCan 1 Drawer 1
            Pencil: Drawer 5 CounterTop 3 GarbageCan 1 DiningTable 1
            PepperShaker: Cabinet 3 CounterTop 3 Drawer 2 DiningTable 2 Shelf 1
            Plate: Cabinet 4 CounterTop 3 DiningTable 2 Fridge 1
            Pot: StoveBurner 7 CounterTop 1 DiningTable 1 Fridge 1
            Potato: CounterTop 3 Fridge 3 DiningTable 2 SinkBasin 1 GarbageCan 1 Microwave 1
            SaltShaker: CounterTop 3 Cabinet 3 DiningTable 2 Drawer 1
            SoapBottle: CounterTop 3 Cabinet 3 DiningTable 2 GarbageCan 1 Shelf 1
            Spatula: CounterTop 4 DiningTable 3 Drawer 2 SinkBasin 1
            Spoon: CounterTop 4 Drawer 3 DiningTable 2 SinkBasin 1
            SprayBottle: CounterTop 5 Cabinet 3 GarbageCan 1 DiningTable 1
            Statue: CounterTop 6 Shelf 4 DiningTable 1
            Tomato: Fridge 3 CounterTop 3 DiningTable 2 GarbageCan 1 SinkBasin 1
            Vase: Cabinet 4 CounterTop 4 Shelf 3
            WineBottle: CounterTop 4 DiningTable 3 Cabinet 3 GarbageCan 1
        """),
        lamp=0.0,
        stands=(),
    ),
    "living": Room(
        first=201,
        furniture=_furniture("""
            Sofa 1 1 2
            GarbageCan 1 1 1
            ArmChair 0.93 1 3
            SideTable 0.82 1 4
            CoffeeTable 0.8 1 2
            Drawer 0.77 1 10
            DiningTable 0.47 1 2
            Dresser 0.39 1 2
            Shelf 0.39 1 12
            TVStand 0.35 1 2
            Cabinet 0.17 1 8
            Ottoman 0.12 1 1
            Safe 0.03 1 1
            Desk 0.02 1 1
        """),
        needed=("CoffeeTable", "SideTable", "Sofa"),
        things=_weights("""
            Book: Dresser 2 CoffeeTable 2 Sofa 2 DiningTable 2 SideTable 1 ArmChair 1
            Bowl: CoffeeTable 8 DiningTable 1 TVStand 1
            Box: DiningTable 3 CoffeeTable 2 Sofa 2 SideTable 1 Cabinet 1 ArmChair 1
            Candle: DiningTable 3 SideTable 3 CoffeeTable 2 TVStand 1 Drawer 1 Dresser 1
            CellPhone: Drawer 2 CoffeeTable 2 Sofa 2 DiningTable 1 Dresser 1 ArmChair 1
            CreditCard: Sofa 2 CoffeeTable 2 ArmChair 1 Drawer 1 DiningTable 1 TVStand 1
            HousePlant: SideTable 5 CoffeeTable 3 Dresser 2 DiningTable 1 TVStand 1
            KeyChain: CoffeeTable 2 Drawer 2 SideTable 1 TVStand 1 Dresser 1 Sofa 1
            Laptop: CoffeeTable 3 DiningTable 3 Sofa 2 ArmChair 1 Dresser 1 TVStand 1
            Newspaper: CoffeeTable 3 DiningTable 2 SideTable 2 Sofa 1 Shelf 1 Dresser 1
            Pen: Dresser 3 SideTable 2 CoffeeTable 2 Drawer 1 TVStand 1 Shelf 1
            Pencil: SideTable 3 Drawer 2 GarbageCan 2 CoffeeTable 2 Shelf 1
            Pillow: Sofa 8 ArmChair 2
            Plate: DiningTable 5 CoffeeTable 3 SideTable 1 Shelf 1
            RemoteControl: CoffeeTable 3 Sofa 2 DiningTable 1 Dresser 1 ArmChair 1 TVStand 1
            Statue: CoffeeTable 2 Shelf 2 DiningTable 2 TVStand 1 SideTable 1 Dresser 1
            Television: TVStand 5 Dresser 4 CoffeeTable 1
            TissueBox: CoffeeTable 3 DiningTable 2 Shelf 2 SideTable 1 TVStand 1 Drawer 1
            Vase: Shelf 4 CoffeeTable 2 DiningTable 2 Dresser 1 TVStand 1 SideTable 1
            Watch: CoffeeTable 3 Drawer 2 TVStand 1 SideTable 1 Dresser 1 DiningTable 1
            WateringCan: Shelf 5 CoffeeTable 2 SideTable 2
        """),
        lamp=0.25,
        stands=("SideTable", "CoffeeTable", "Dresser"),
    ),
    "bedroom": Room(
        first=301,
        furniture=_furniture("""
            Bed 1 1 2
            GarbageCan 1 1 1
            Drawer 0.96 2 12
            Desk 0.71 1 2
            Shelf 0.68 1 10
            SideTable 0.64 1 2
            Dresser 0.45 1 2
            LaundryHamper 0.3 1 1
            Safe 0.2 1 1
            ArmChair 0.19 1 3
            Cabinet 0.16 1 4
            DiningTable 0.12 1 1
            CounterTop 0.03 1 1
        """),
        needed=("Bed", "Desk", "Drawer"),
        things=_weights("""
            AlarmClock: Desk 3 SideTable 2 Shelf 2 Dresser 2 DiningTable 1
            BaseballBat: Bed 1
            BasketBall: Bed 1 Desk 1
            Book: Bed 6 Desk 2 Drawer 1 SideTable 1 Dresser 1 DiningTable 1
            Bowl: Desk 4 Shelf 2 Dresser 2 DiningTable 1 SideTable 1 CounterTop 1
            Box: Shelf 5 Desk 5
            CD: Drawer 3 Desk 2 SideTable 2 Dresser 2 GarbageCan 1 Shelf 1
            CellPhone: Bed 2 Desk 2 Drawer 2 Dresser 2 SideTable 1 Shelf 1
            Cloth: LaundryHamper 4 Drawer 2 Desk 1
            CreditCard: Drawer 3 SideTable 2 Desk 2 Shelf 2 Dresser 1 DiningTable 1
            HousePlant: Shelf 5 Desk 3 Dresser 1 Cabinet 1
            KeyChain: Drawer 3 SideTable 2 Desk 2 Shelf 1 Dresser 1 ArmChair 1
            Laptop: Bed 7 Desk 2 Dresser 1 DiningTable 1
            Mug: Desk 3 Dresser 2 SideTable 1 DiningTable 1 Shelf 1 Cabinet 1
            Pen: Desk 3 Drawer 2 Dresser 2 Shelf 1 SideTable 1 DiningTable 1
            Pencil: Desk 3 Drawer 2 Shelf 2 SideTable 1 Dresser 1 DiningTable 1
            Pillow: Bed 9 ArmChair 1
            RemoteControl: Desk 3 Drawer 2 SideTable 2 CounterTop 1 DiningTable 1 ArmChair 1
            Statue: Shelf 6 Dresser 2 Desk 1 SideTable 1
            Television: Dresser 10
            TissueBox: Desk 3 Drawer 2 DiningTable 2 Shelf 2 SideTable 1
            Vase: Shelf 8 Dresser 1 Desk 1
            Watch: Drawer 4 Desk 3 Shelf 2 Dresser 2
        """),
        lamp=0.72,
        stands=("Desk", "SideTable", "Dresser", "Shelf"),
    ),
    "bathroom": Room(
        first=401,
        furniture=_furniture("""
            SinkBasin 1 1 2
            Toilet 1 1 1
            ToiletPaperHanger 1 1 1
            GarbageCan 1 1 1
            HandTowelHolder 1 1 4
            TowelHolder 1 1 2
            CounterTop 0.86 1 2
            BathtubBasin 0.64 1 1
            Drawer 0.55 1 8
            Cabinet 0.46 2 9
            Shelf 0.25 1 4
            Cart 0.08 1 1
            Dresser 0.08 1 1
            SideTable 0.06 1 1
        """),
        needed=("CounterTop", "SinkBasin", "Toilet"),
        things=_weights("""
            Candle: CounterTop 3 Toilet 3 Drawer 2 Cabinet 1 Shelf 1
            Cloth: BathtubBasin 3 Cabinet 2 CounterTop 2 Drawer 2 SinkBasin 1
            DishSponge: CounterTop 4 SinkBasin 2 Drawer 1 Toilet 1 BathtubBasin 1 Shelf 1
            HandTowel: HandTowelHolder 9 CounterTop 1
            HousePlant: SideTable 10
            SoapBar: CounterTop 2 Cabinet 2 Toilet 2 SinkBasin 1 BathtubBasin 1 Drawer 1
            SoapBottle: CounterTop 3 Cabinet 2 Toilet 2 Shelf 1 GarbageCan 1 Drawer 1
            SprayBottle: CounterTop 4 Toilet 3 Cabinet 1 GarbageCan 1 SideTable 1 Shelf 1
            TissueBox: Shelf 4 CounterTop 3 Drawer 2 SideTable 1 Toilet 1
            ToiletPaper: Toilet 2 CounterTop 2 Cabinet 1 ToiletPaperHanger 1 Drawer 1 GarbageCan 1
            Towel: TowelHolder 10
        """),
        lamp=0.0,
        stands=(),
    ),
}

ALWAYS_OPENABLE = frozenset(("Fridge", "Microwave"))
#: Kinds of which a part is plain: share that opens.
OFTEN_OPENABLE = {"Cabinet": 0.82, "Drawer": 0.84, "Safe": 0.85}

CAN_CONTAIN = _lists("""
    ArmChair: Book Box CellPhone Cloth CreditCard KeyChain Laptop Newspaper Pillow RemoteControl
    BathtubBasin: Cloth DishSponge HandTowel SoapBar
    Bed: BaseballBat BasketBall Book CellPhone Laptop Pillow TennisRacket
    Cabinet: Book Bowl Box CD Candle Cloth Cup DishSponge Glassbottle HandTowel Kettle Ladle Mug \
Newspaper Pan PepperShaker Plate Plunger Pot SaltShaker SoapBar SoapBottle SprayBottle TissueBox \
ToiletPaper Vase WateringCan WineBottle
    Cart: Candle Cloth DishSponge HandTowel Plunger SoapBar SoapBottle SprayBottle TissueBox \
ToiletPaper
    CoffeeMachine: Mug
    CoffeeTable: Book Bowl Box Candle CellPhone CreditCard KeyChain Laptop Newspaper Pen Pencil \
Plate RemoteControl Statue TissueBox Vase Watch WateringCan
    CounterTop: AlarmClock Apple Book Bowl Bread ButterKnife CD Candle CellPhone Cloth CreditCard \
Cup DishSponge Egg Fork Glassbottle HandTowel Kettle KeyChain Knife Ladle Laptop Lettuce Mug Pan \
Pen Pencil PepperShaker Plate Pot Potato RemoteControl SaltShaker SoapBar SoapBottle Spatula Spoon \
SprayBottle Statue TissueBox ToiletPaper Tomato Vase WineBottle
    Desk: AlarmClock BasketBall Book Bowl Box CD CellPhone Cloth CreditCard KeyChain Laptop Mug \
Pen Pencil RemoteControl Statue TennisRacket TissueBox Vase Watch WateringCan
    DiningTable: AlarmClock Apple BaseballBat BasketBall Book Bowl Box Bread ButterKnife CD Candle \
CellPhone Cloth CreditCard Cup DishSponge Egg Fork Glassbottle Kettle KeyChain Knife Ladle Laptop \
Lettuce Mug Newspaper Pan Pen Pencil PepperShaker Plate Pot Potato RemoteControl SaltShaker \
SoapBottle Spatula Spoon SprayBottle Statue TennisRacket TissueBox Tomato Vase Watch WateringCan \
WineBottle
    Drawer: Book ButterKnife CD Candle CellPhone Cloth CreditCard DishSponge Fork HandTowel \
KeyChain Knife Ladle Newspaper Pen Pencil PepperShaker RemoteControl SaltShaker SoapBar SoapBottle \
Spatula Spoon SprayBottle TissueBox ToiletPaper Watch WateringCan
    Dresser: AlarmClock BasketBall Book Bowl Box CD Candle CellPhone Cloth CreditCard KeyChain \
Laptop Mug Newspaper Pen Pencil Plate RemoteControl SprayBottle Statue TennisRacket TissueBox \
ToiletPaper Vase Watch WateringCan
    Fridge: Apple Bowl Bread Cup Egg Glassbottle Lettuce Mug Pan Plate Pot Potato Tomato WineBottle
    GarbageCan: Apple Bread CD Cloth DishSponge Egg HandTowel Lettuce Newspaper Pen Pencil Potato \
SoapBar SoapBottle SprayBottle TissueBox ToiletPaper Tomato WineBottle
    HandTowelHolder: HandTowel
    LaundryHamper: Cloth
    Microwave: Apple Bowl Bread Cup Egg Glassbottle Mug Plate Potato Tomato
    Ottoman: Book Box CellPhone CreditCard KeyChain Laptop Newspaper Pillow RemoteControl
    Safe: CD CellPhone CreditCard KeyChain Statue Vase Watch
    Shelf: AlarmClock Book Bowl Box CD Candle CellPhone Cloth CreditCard Cup DishSponge \
Glassbottle HandTowel Kettle KeyChain Mug Newspaper Pen Pencil PepperShaker Plate Pot \
RemoteControl SaltShaker SoapBar SoapBottle SprayBottle Statue TissueBox ToiletPaper Vase Watch \
WateringCan WineBottle
    SideTable: AlarmClock Apple BaseballBat BasketBall Book Bowl Box Bread ButterKnife CD Candle \
CellPhone Cloth CreditCard Cup DishSponge Egg Fork HandTowel Kettle KeyChain Knife Laptop Lettuce \
Mug Newspaper Pan Pen Pencil PepperShaker Plate Pot Potato RemoteControl SaltShaker SoapBar \
SoapBottle Spatula Spoon SprayBottle Statue TennisRacket TissueBox ToiletPaper Tomato Vase Watch \
WateringCan WineBottle
    SinkBasin: Apple Bowl ButterKnife Cloth Cup DishSponge Egg Fork Glassbottle HandTowel Kettle \
Knife Ladle Lettuce Mug Pan Plate Pot Potato SoapBar Spatula Spoon Tomato
    Sofa: Book Box CellPhone CreditCard KeyChain Laptop Newspaper Pillow RemoteControl
    StoveBurner: Kettle Pan Pot
    TVStand: TissueBox
    Toilet: Candle Cloth DishSponge HandTowel SoapBar SoapBottle SprayBottle TissueBox ToiletPaper
    ToiletPaperHanger: ToiletPaper
    TowelHolder: Towel
""")

#: Predicate to the kinds of thing that have it. Everything but scenery can be picked up.
FLAGS = _lists("""
    cleanable: Apple Bowl ButterKnife Cloth Cup DishSponge Egg Fork Kettle Knife Ladle Lettuce Mug \
Pan Plate Pot Potato SoapBar Spatula Spoon Tomato
    heatable: Apple Bread Cup Egg Mug Plate Potato Tomato
    coolable: Apple Bowl Bread Cup Egg Lettuce Mug Pan Plate Pot Potato Tomato WineBottle
    sliceable: Apple Bread Egg Lettuce Potato Tomato
    isReceptacleObject: Bowl Box Cup Mug Pan Plate Pot
    toggleable: DeskLamp FloorLamp
    scenery: DeskLamp FloorLamp HousePlant Television
""")

#: Task type to the kinds of receptacle that its goals name.
DESTINATIONS = _lists("""
    pick_and_place_simple: ArmChair Bed Cabinet Cart CoffeeTable CounterTop Desk DiningTable \
Drawer Dresser Fridge GarbageCan Microwave Ottoman Safe Shelf SideTable Sofa StoveBurner Toilet \
ToiletPaperHanger
    pick_clean_then_place_in_recep: Cabinet Cart CoffeeMachine CounterTop DiningTable Drawer \
Dresser Fridge GarbageCan Microwave Shelf SideTable StoveBurner Toilet
    pick_heat_then_place_in_recep: Cabinet CoffeeMachine CounterTop DiningTable Fridge GarbageCan \
Shelf SideTable
    pick_cool_then_place_in_recep: Cabinet CoffeeMachine CounterTop DiningTable GarbageCan \
Microwave Shelf SideTable StoveBurner
    pick_two_obj_and_place: ArmChair Bed Cabinet Cart CoffeeTable CounterTop Desk DiningTable \
Drawer Dresser Fridge GarbageCan Microwave Ottoman Safe Shelf SideTable Sofa Toilet
""")

#: Task type to the flag that its thing must have, the predicate that it must get, the kind of
#: receptacle that gives it, and the word for it in goals.
MEANS = {
    "pick_clean_then_place_in_recep": ("cleanable", "isClean", "SinkBasin", "clean"),
    "pick_heat_then_place_in_recep": ("heatable", "isHot", "Microwave", "hot"),
    "pick_cool_then_place_in_recep": ("coolable", "isCool", "Fridge", "cool"),
}


def lower(kind: str) -> str:
    """A kind as players read it."""
    return kind.lower()
