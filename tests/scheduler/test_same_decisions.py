"""The same decisions as kube-scheduler 1.36 on thousands of recorded questions, ties aside."""

import pytest
from tests.scheduler.recordings import compare, recorded

PARTS = 16


@pytest.mark.parametrize("part", range(PARTS))
def test_nodes_scores_and_victims_equal_those_of_kube_scheduler(part: int) -> None:
    questions = recorded()[part::PARTS]
    assert questions
    differences = [str(difference) for question in questions for difference in compare(question)]
    assert not differences, "\n".join(differences[:10])


def test_the_recordings_cover_every_answer_that_kube_scheduler_can_give() -> None:
    answers = [answer for question in recorded() for answer in question["answers"]]
    assert len(answers) > 4000
    for part in ("fits", "refused", "prefilter", "absent", "scores", "message", "candidates", "nominated"):
        assert sum(bool(answer.get(part)) for answer in answers) > 40, part
