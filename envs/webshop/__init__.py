"""WebShop: find a product that fits an instruction in a text web shop, and buy it."""
