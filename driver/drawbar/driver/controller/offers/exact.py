"""The exact device: each device that no other kind has is an offer, realised by itself; pure."""

from collections.abc import Collection

from drawbar.driver.controller.offers.offer import Arrangement, Offer, Stock


def offer(stock: Stock, taken: Collection[str]) -> Arrangement:
    """Return the rest of a fabric's devices."""
    return Arrangement(
        offers={
            name: Offer(name=name, device=device, parts=(name,))
            for name, device in stock.by_name.items()
            if name not in taken
        }
    )
