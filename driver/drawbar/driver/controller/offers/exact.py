"""The offer of an exact device: each device that no other kind takes is an offer with itself as its part; pure."""

from collections.abc import Collection

from drawbar.driver.controller.offers.offer import Arrangement, Offer, Stock


def offer(stock: Stock, taken: Collection[str]) -> Arrangement:
    """Return the offers of a fabric's remaining devices."""
    return Arrangement(
        offers={
            name: Offer(name=name, device=device, parts=(name,))
            for name, device in stock.by_name.items()
            if name not in taken
        }
    )
