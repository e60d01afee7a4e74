"""A round counted on Cloudflare's runtime has the same bytes as locally."""

from hypothesis import given, settings
from hypothesis import strategies as st

from support.random_rounds import round_inputs
from support.workerd import Workerd
from tocsin.rounds.file import file_lines, parts_of
from tocsin.rounds.round import RoundInputs
from tocsin.rounds.score import score

COMPETITIONS = 100
AT_ONCE = 10  # in one request


@settings(max_examples=COMPETITIONS // AT_ONCE)
@given(competitions=st.lists(round_inputs(), min_size=AT_ONCE, max_size=AT_ONCE))
def test_100_random_competitions_have_the_same_bytes(workerd: Workerd, competitions: list[RoundInputs]) -> None:
    """Each is counted there from the file made locally; the digest is part of the bytes."""
    files = ["".join(parts_of(file_lines(inputs, score(inputs)))) for inputs in competitions]
    assert workerd.recounted_files(files) == files
