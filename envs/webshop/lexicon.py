"""The words that embedded catalogues are made of.

Two lexicons: ``SMALL`` is closed and tiny, so that each name is one token of a small vocabulary;
``DEPARTMENTS`` is the language of the full catalogue. Tests check what the rest relies on: no two
attributes of a pool and no two values of opposite halves count as equal under the reward's fuzzy
comparison, and no filler sentence names an attribute.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "DEPARTMENTS",
    "DETAILS",
    "ENDINGS",
    "OPENERS",
    "SENTENCES",
    "SMALL",
    "Department",
    "OptionGroup",
    "ProductType",
    "SmallLexicon",
    "phrases",
]


def phrases(text: str) -> tuple[str, ...]:
    """Comma-separated phrases, over any number of lines."""
    return tuple(" ".join(phrase.split()) for phrase in text.split(","))


@dataclass(frozen=True, slots=True)
class SmallLexicon:
    """Words of the small catalogue.

    Attributes:
        nouns: Kinds of product, one word each.
        attributes: Two words each; any noun can have any of them.
        brands: One word each.
        colors: Values of the option group ``color``.
        sizes: Values of the option group ``size``.
        units: Last digits of prices, in dollars.
        decades: Smallest and largest tens digit of a target's price.
    """

    nouns: tuple[str, ...]
    attributes: tuple[str, ...]
    brands: tuple[str, ...]
    colors: tuple[str, ...]
    sizes: tuple[str, ...]
    units: tuple[int, ...]
    decades: tuple[int, int]


SMALL = SmallLexicon(
    nouns=phrases("""
        apron, backpack, basket, blanket, bottle, bowl, chair, clock, curtain, cushion, jacket,
        lamp, mirror, mug, pillow, rug, stool, tent, towel, umbrella"""),
    attributes=phrases("""
        anti slip, bpa free, child safe, deep pocket, double sided, dust proof, easy carry,
        eco friendly, extra thick, fade resistant, fully lined, hand made, heavy duty,
        high quality, lead free, light weight, long lasting, machine washable, mid century,
        non toxic, quick drying, scratch proof, space saving, stain repellent, super soft,
        tear resistant, ultra compact, vintage style, water tight, wrinkle free"""),
    brands=phrases("""
        Alderon, Bexley, Corvane, Dunmore, Estrala, Fenwick, Galdino, Hartsby, Ivarro, Jostin"""),
    colors=phrases("""
        black, blue, brown, green, orange, pink, purple, red, silver, teal, white, yellow"""),
    sizes=phrases("small, medium, large, mini, jumbo, tall"),
    units=(2, 5, 8),
    decades=(1, 8),
)


@dataclass(frozen=True, slots=True)
class OptionGroup:
    """An option group and its values, in two halves that never count as equal.

    Attributes:
        name: Group name as the raw rows write it.
        left: Values of one half.
        right: Values of the other half; empty where values are too alike to tell products apart.
    """

    name: str
    left: tuple[str, ...]
    right: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProductType:
    """One kind of product.

    Attributes:
        head: Its name in titles; every word is a noun.
        query: The search phrase it is listed under.
        path: Last two parts of its category path.
        groups: Option groups it can have; the first has two halves.
        low: Lowest usual price, in dollars.
        high: Highest usual price, in dollars.
        article: What a shopper puts before it: ``a``, or ``some`` for plurals and stuffs.
    """

    head: str
    query: str
    path: str
    groups: tuple[OptionGroup, ...]
    low: float
    high: float
    article: str


@dataclass(frozen=True, slots=True)
class Department:
    """One department of the full catalogue.

    Attributes:
        category: Its short name in the raw rows.
        root: First part of its category paths.
        types: Kinds of product.
        attributes: Attributes that read as an adjective ("gluten free crackers").
        purposes: Attributes that read as a purpose ("lotion for dry skin").
        modifiers: Words for titles.
        audiences: Ends of titles.
    """

    category: str
    root: str
    types: tuple[ProductType, ...]
    attributes: tuple[str, ...]
    purposes: tuple[str, ...]
    modifiers: tuple[str, ...]
    audiences: tuple[str, ...]


def _group(name: str, left: str, right: str = "") -> OptionGroup:
    return OptionGroup(name, phrases(left), phrases(right) if right else ())


_GROUPS = {
    "color": _group(
        "Color",
        "Black, Navy Blue, Forest Green, Brown, Purple, Teal, Light Blue, Burgundy",
        "White, Wine Red, Hot Pink, Silver Grey, Yellow, Burnt Orange, Ivory, Rosé Pink",
    ),
    "finish": _group(
        "Color",
        "Matte Black, Rustic Brown, Walnut, Espresso, Sapphire",
        "Glossy White, Brushed Silver, Slate Grey, Beige, Champagne",
    ),
    "shade": _group(
        "Color",
        "Peachy Nude, Coral Reef, Plum Velvet, Mocha Dream, Porcelain",
        "Ruby Red, Bronze Glow, Mauve Mist, Amber Haze, Pink Crème",
    ),
    "scent": _group(
        "Scent",
        "Lavender, Vanilla Bean, Eucalyptus, Jasmine, Cedar Forest",
        "Citrus Zest, Rose Petal, White Tea, Unscented, Pomelo Café",
    ),
    "flavor": _group(
        "Flavor Name",
        "Sea Salt, Dark Chocolate, Maple Pecan, Cranberry, Crème Brûlée, Honey Mustard",
        "Chili Lime, Strawberry, Peanut Butter, Garlic Herb, Jalapeño, Cinnamon Apple",
    ),
    "taste": _group(
        "Flavor",
        "Original, Hazelnut, Mocha Fudge, Raspberry",
        "French Vanilla, Salted Caramel, Coconut, Pumpkin Spice",
    ),
    "clothes": _group("Size", "X-Small, Small, Medium, Large, X-Large, XX-Large"),
    "shoes": _group("Size", "6, 6.5, 7, 7.5, 8, 9, 10 Wide"),
    "inseam": _group("Inseam", '29" inseam, 31" inseam, 33" inseam'),
    "fit": _group("Fit Type", "Men, Women, Youth"),
    "sheet": _group("Size", '12" x 18", 24" x 36", 31"x47", 60"x80", 5 ft x 7 ft'),
    "bed": _group("Size", "Twin, Full, Queen, King, California King"),
    "style": _group("Style", "Modern, Farmhouse, Industrial, Scandinavian"),
    "length": _group("Size", "3 ft, 6 ft, 10 ft, 15 ft, 25 ft"),
    "edition": _group("Style", "Basic, Deluxe, Bundle/Case, Travel Kit"),
    "pack": _group(
        "Size", "4 Ounce (Pack of 1), 8 Ounce (Pack of 2), 12 Count, 1.5 Pound, 2 Kilogram"
    ),
    "volume": _group("Size", "1.7 Fl Oz, 3.4 Fl Oz, 120 ml, 250 ml, Travel Pouch"),
    "count": _group("Number of Items", "1, 3, 6, 24"),
}


def _types(table: str) -> tuple[ProductType, ...]:
    """Product types from lines: head | query | path | groups | price range | article."""
    types = []
    for line in table.strip().splitlines():
        head, query, path, groups, prices, article = (cell.strip() for cell in line.split("|"))
        low, high = prices.split("-")
        chosen = tuple(_GROUPS[name] for name in groups.split())
        types.append(ProductType(head, query, path, chosen, float(low), float(high), article))
    return tuple(types)


#: Departments of the full catalogue.
DEPARTMENTS = (
    Department(
        "beauty",
        "Beauty & Personal Care",
        _types("""
            Face Serum | skin care serums | Skin Care › Serums | scent volume count | 9-48 | a
            Body Lotion | body lotions | Skin Care › Moisturizers | scent volume count | 7-32 | some
            Shampoo | hair shampoos | Hair Care › Shampoo | scent volume count | 8-38 | some
            Lipstick | lips makeup | Makeup › Lipstick | shade count | 6-29 | a
            Eyeshadow Palette | makeup palettes | Makeup › Palettes | shade count | 11-54 | a
            Makeup Brush | makeup brushes & tools | Tools › Brushes | color count | 6-34 | a
            Toiletry Case | bags & cases | Tools › Cases | color edition | 9-42 | a
            Deodorant | antiperspirants | Bath › Deodorants | scent volume count | 5-22 | some
        """),
        phrases("""
            cruelty free, paraben free, sulfate free, alcohol free, fragrance free, oil free,
            long lasting, easy apply, dermatologist tested, clinically proven, travel size,
            leak proof, non toxic, certified organic, high quality, easy carry"""),
        phrases("dry skin, sensitive skin, fine lines, dark circles, damaged hair, hair styling"),
        phrases("Daily, Gentle, Luxe, Professional, Soothing, Radiant, Essential, Mini"),
        phrases("for Women and Men, Gift for Her, for Every Age, for Home and Salon"),
    ),
    Department(
        "electronics",
        "Electronics",
        _types("""
            HDMI Cable | hdmi cables | Cables › Video Cables | color length count | 6-29 | a
            Bluetooth Speaker | portable speakers | Audio › Speakers | color edition | 18-140 | a
            Phone Case | basic cases | Phones › Cases | color edition | 7-31 | a
            Camera Tripod | tripods | Camera › Tripods | finish length edition | 19-160 | a
            Wall Charger | wall chargers | Phones › Chargers | color length count | 8-44 | a
            Headphones | headphones | Audio › Headphones | color edition | 17-190 | some
            Monitor Stand | monitor mounts | Computers › Mounts | finish length | 22-120 | a
            Photo Backdrop | backgrounds | Camera › Backdrops | color sheet | 12-63 | a
        """),
        phrases("""
            fast charging, high speed, hands free, plug play, gold plated, water resistant,
            dust proof, light weight, heavy duty, high definition, quick release, easy install,
            noise cancelling, shock absorbing, wireless control, eco friendly"""),
        phrases("""
            aluminum alloy, carbon fiber, tempered glass, stereo sound, usb port, 4g network"""),
        phrases("Compact, Universal, Premium, Slim, Rugged, Upgraded, Pro, Studio"),
        phrases("""
            for Home Office, for Travel and School, Compatible with Most Devices, for Beginners"""),
    ),
    Department(
        "fashion",
        "Clothing, Shoes & Jewelry",
        _types("""
            Shirt | men's shirts | Men › Shirts | color clothes fit | 12-49 | a
            Leggings | women's leggings | Women › Active | color clothes inseam | 11-46 | some
            Sandals | women's sandals | Women › Shoes | color shoes | 15-84 | some
            Ankle Boots | ankle & booties | Women › Boots | color shoes | 28-140 | some
            Jeans | men's jeans | Men › Jeans | color clothes inseam | 21-88 | some
            Hoodie | hoodies & sweatshirts | Men › Active | color clothes fit | 16-67 | a
            Dress | women's dresses | Women › Dresses | color clothes | 17-96 | a
            Pajama Set | sleep & lounge | Women › Sleepwear | color clothes fit | 14-58 | a
        """),
        phrases("""
            machine wash, slim fit, relaxed leg, long sleeve, elastic waist, high rise,
            rubber sole, memory foam, non slip, arch support, button closure, quick drying,
            moisture wicking, tummy control, winter warm, hidden pocket"""),
        phrases("""
            daily wear, gym workout, teen girls, cold weather, everyday comfort, evening party"""),
        phrases("Casual, Classic, Vintage, Cozy, Trendy, Basic, Outdoor, Sporty"),
        phrases("Fall Collection, with Gift Bag, New Arrival, Plus Sizes Available"),
    ),
    Department(
        "garden",
        "Home & Kitchen",
        _types("""
            Console Table | console tables | Furniture › Tables | finish style | 59-320 | a
            Pillow Cover | decorative pillows | Bedding › Pillow Covers | color sheet | 7-34 | a
            Area Rug | area rugs | Decor › Rugs | color sheet style | 29-210 | a
            Bed Frame | beds | Furniture › Bed Frames | finish bed style | 88-390 | a
            Curtain Panel | window curtains | Decor › Curtains | color sheet | 13-71 | a
            Table Lamp | table lamps | Lighting › Lamps | finish style count | 19-130 | a
            Bookcase | bookcases | Furniture › Bookcases | finish style | 49-260 | a
            Comforter | comforters & sets | Bedding › Comforters | color bed | 27-150 | a
        """),
        phrases("""
            solid wood, easy assemble, easy clean, heavy duty, space saving, machine washable,
            super soft, stainless steel, faux leather, high density, non slip, eco friendly,
            mid century, double sided, wall mounted, fade resistant"""),
        phrases("""
            living room, dining room, storage space, small spaces, guest bedroom, home decor"""),
        phrases("Modern, Rustic, Elegant, Minimal, Decorative, Large, Boho, Handcrafted"),
        phrases("""
            for Apartment and Office, Housewarming Gift, Indoor Use, with Hardware Included"""),
    ),
    Department(
        "grocery",
        "Grocery & Gourmet Food",
        _types("""
            Crackers | snack crackers | Snack Foods › Crackers | flavor pack count | 5-31 | some
            Protein Bars | bars | Snack Foods › Bars | flavor pack count | 9-44 | some
            Trail Mix | nuts & seeds | Snack Foods › Nuts | flavor pack count | 7-38 | some
            Ground Coffee | coffee, tea & cocoa | Drinks › Coffee | taste pack count | 8-42 | some
            Herbal Tea | teas | Drinks › Tea | taste pack count | 5-27 | some
            Granola | breakfast cereals | Breakfast › Granola | flavor pack count | 6-33 | some
            Popcorn | popcorn | Snack Foods › Popcorn | flavor pack count | 5-28 | some
            Drink Mix | powdered drink mixes | Drinks › Mixes | taste pack count | 6-36 | some
        """),
        phrases("""
            gluten free, sugar free, low carb, low sodium, non gmo, plant based, dairy free,
            soy free, keto friendly, high fiber, old fashioned, individually wrapped,
            shelf stable, kosher certified, usda organic, small batch"""),
        phrases("""
            gift basket, birthday party, natural flavors, quality ingredients, valentine day,
            road trips"""),
        phrases("Crunchy, Artisan, Family, Classic, Gourmet, Roasted, Homestyle, Bold"),
        phrases("""
            Value Bundle, Pantry Favorite, Snack for Kids and Adults, Resealable Bag"""),
    ),
)

#: Bullet and description sentences; ``{brand}``, ``{head}`` and ``{other}`` are filled in.
SENTENCES = (
    "Each {head} is designed in our own studio and checked twice by hand before it is packed. ",
    "If anything about your {head} is not right, write to the {brand} team and we make it good. ",
    "Packed in a sturdy box that survives the post; please recycle it when you are done. ",
    "Shades may look a little different on your screen – see the pictures taken in daylight. ",
    "Thousands of customers have told us how well it holds up after a year of regular use. ",
    "Measurements are taken by hand, so allow a difference of about 1/2 inch. ",
    "It goes well with the {other} from the same series, which is sold separately. ",
    "We began {brand} in a small workshop, and a person still answers every message. ",
    "Store in a cool place away from direct sun, ideally between 10 °C and 25 °C. ",
    "A thoughtful present for a parent, a colleague or anyone who has just moved house. ",
    "Please read the label and the chart before you order, as models differ slightly. ",
    "Unlike an ordinary {head}, this one was developed with people who use it every day. ",
    "The box holds one {head}, a printed guide and a card with our support address. ",
    "Shipping is usually within two business days; tracking is sent to you by mail. ",
    "Not what you expected? Return the {head} within 30 days for a full refund. ",
    "Also available as a set with {other}; look for “{brand} bundle” in our store. ",
)

#: Lead words of bullets.
DETAILS = phrases("""
    What You Get, Our Promise, Made with Care, Good to Know, Great Gift, Thoughtful Details,
    Service, Worry Less""")

#: Beginnings of requests in a shopper's own words.
OPENERS = phrases("""
    i am looking for, i'm looking for, i need, i want to buy, i would like, can you find me,
    show me, please help me find, looking for, i'd like to order""")

#: Ends of such requests.
ENDINGS = ("", ".", ".", " please.", ", thank you.", " if possible.")
