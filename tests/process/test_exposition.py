"""Prometheus' own parser reads the metrics that are rendered."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from pinnace.process.exposition import Histogram, render_histograms, render_samples

ODD = 'a "quoted"\nline with a \\ in it'


def test_samples_keep_their_order_labels_and_exact_values() -> None:
    samples = [((("path", ODD),), 3.0), ((), 0.1), ((("path", "b"),), 123456789012.0)]
    lines = list(render_samples("requests_total", "Requests.", "counter", samples))
    assert lines[3:] == ["requests_total 0.1", 'requests_total{path="b"} 123456789012']
    (family,) = text_string_to_metric_families("\n".join(lines) + "\n")
    assert (family.type, family.documentation) == ("counter", "Requests.")
    assert [(tuple(sample.labels.items()), sample.value) for sample in family.samples] == samples


def test_a_histogram_counts_each_value_in_its_bucket_and_all_larger_ones() -> None:
    seconds = Histogram((0.5, 1.0))
    for value in (0.5, 0.75, 2.0):
        seconds.observe(value)
    lines = list(render_histograms("seconds", "Time.", [((("verb", "get"),), seconds), ((), Histogram((0.5, 1.0)))]))
    assert lines[2:7] == [
        'seconds_bucket{verb="get",le="0.5"} 1',
        'seconds_bucket{verb="get",le="1"} 2',
        'seconds_bucket{verb="get",le="+Inf"} 3',
        'seconds_sum{verb="get"} 3.25',
        'seconds_count{verb="get"} 3',
    ]
    (family,) = text_string_to_metric_families("\n".join(lines) + "\n")
    assert (family.type, len(family.samples)) == ("histogram", 10)
