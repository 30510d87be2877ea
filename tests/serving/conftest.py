"""Two small models behind one server, for all tests that only ask."""

from collections.abc import Iterator

import pytest

from multimdm.serving.catalog import Offer
from support.live_server import Live, serving
from support.tiny_models import tales_model


def tiny_offers() -> dict[str, Offer]:
    return {
        name: Offer.of(name, tales_model(masks, seed)) for seed, (name, masks) in enumerate([("many", 3), ("one", 1)])
    }


@pytest.fixture(scope="session")
def offers() -> dict[str, Offer]:
    return tiny_offers()


@pytest.fixture(scope="session")
def live(offers) -> Iterator[Live]:
    with serving(offers) as server:
        yield server
