"""``matching``: is text A nearer to B or to C, and how much of each text must be read to know?

The task is that of CAIL2019-SCM (Xiao et al. 2019, https://arxiv.org/abs/1911.08962), on which Su
et al. 2021, RoFormer, https://arxiv.org/abs/2104.09864, compare lengths of truncation. Rows are
encodings and lengths, and beside each a baseline without training: tf-idf of pairs of characters.
The triplets are made ones, whose evidence is in the second half, or those of a file; a TSV file of
labelled texts goes through the same model with its head for classification. docs/matching.md says
what a model of this size can show. Translation (WMT) and GLUE as a whole are not here.
"""

import time
from collections.abc import Sequence
from pathlib import Path

from whorl.lab.compare.statistics import estimate
from whorl.lab.matching import (
    CharacterVocabulary,
    LabelledText,
    TfIdf,
    encode_examples,
    evaluate_matcher,
    train_matcher,
)
from whorl.lab.matching.folds import score_unread
from whorl.lab.matching.options import (
    DataSplit,
    MatchingOptions,
    build_scorer,
    describe_files,
    list_texts,
    load_split,
)
from whorl.lab.trainer import TrainingProgress

from .definition import CurveLabels, Experiment, MeasureLabel, ResultTable, RowRequest, Tables
from .results import RowMeasurement, RowResults

__all__ = ["EXPERIMENT", "PUBLISHED", "list_published", "run_row"]

_ACCURACY, _LOSS = "accuracy", "training loss"
#: Model and tokens read, accuracy on the validation and the test triplets of CAIL2019-SCM, in per
#: cent: Su et al. 2021, RoFormer, table 5.
PUBLISHED = (
    ("BERT", 512, 64.13, 67.77),
    ("WoBERT", 512, 64.07, 68.10),
    ("RoFormer", 512, 64.13, 68.29),
    ("RoFormer", 1024, 66.07, 69.79),
)


def run_row(request: RowRequest) -> RowMeasurement:
    """Accuracy of one model at one length, with one seed."""
    options = MatchingOptions.from_tables(request.tables)
    request.show(TrainingProgress("reading", 0, options.training.steps))
    split, began = load_split(options, request.seed), time.monotonic()
    facts: dict[str, float] = {
        "trained_on": len(split.train),
        "tested": len(split.test),
        "labels": len(split.labels),
    }
    facts |= {"file": len(options.data.files), "length": options.training.length}
    facts["guess"] = _count_most_frequent(split)
    if options.model.scorer == "tf-idf":
        found = _run_tfidf(split, options.training.length)
    else:
        found = _run_scorer(split, options, request)
    facts |= {**found.facts, "seconds": time.monotonic() - began}
    return RowMeasurement(found.values, curves=found.curves, facts=facts)


def _run_tfidf(split: DataSplit, length: int) -> RowMeasurement:
    """Accuracy of the baseline; with a file of triplets also on all of them, in facts."""
    tfidf = TfIdf(split.texts, length=length)
    if split.labels:
        right = tfidf.test_labels(split.train, split.test)  # type: ignore[arg-type]
        return RowMeasurement({_ACCURACY: _average(right)})
    values = {_ACCURACY: _average(tfidf.test_triplets(split.test))}  # type: ignore[arg-type]
    if not split.every:
        return RowMeasurement(values)
    every = TfIdf(list_texts(split.every), length=length).test_triplets(split.every)  # type: ignore[arg-type]
    unread = score_unread(split.every)  # type: ignore[arg-type]
    facts = {"every": len(every), "every_accuracy": _average(every), "unread": unread}
    return RowMeasurement(values, facts=facts)


def _run_scorer(split: DataSplit, options: MatchingOptions, request: RowRequest) -> RowMeasurement:
    """Train and test a model."""
    training = options.training
    vocabulary = CharacterVocabulary.from_texts(split.texts)
    model = build_scorer(options, vocab=vocabulary.size, labels=len(split.labels))
    model.reset_parameters(request.seed)
    train, test = (
        encode_examples(
            examples,
            vocabulary,
            length=training.length,
            labels=split.labels,
            pairs=options.model.scorer == "sequences",
        )
        for examples in (split.train, split.test)
    )
    history = train_matcher(
        model,
        train,
        steps=training.steps,
        batch=training.batch,
        learning_rate=training.learning_rate,
        seed=request.seed,
        show=lambda n, loss: request.show(TrainingProgress("training", n, training.steps, loss)),
    )
    right = evaluate_matcher(
        model, test, lambda n: request.show(TrainingProgress("testing", n, len(test)))
    )
    return RowMeasurement(
        {_ACCURACY: _average(right)},
        curves={_LOSS: {"x": history.steps, "y": history.losses}},
        facts={
            "parameters": sum(weight.numel() for weight in model.parameters()),
            "step_seconds": history.seconds / training.steps,
            "steps": training.steps,
            "training_accuracy": history.accuracy,
        },
    )


def check_row(tables: Tables) -> None:
    """Raise ValueError unless the options of a row are right and its model can be built."""
    options = MatchingOptions.from_tables(tables)
    if options.model.scorer != "tf-idf":
        build_scorer(options, vocab=8)


def shorten_row(tables: Tables) -> Tables:
    """The same row with a third of the steps; tf-idf has none."""
    steps = MatchingOptions.from_tables(tables).training.steps
    return {**tables, "training": {**tables["training"], "steps": max(1, steps // 3)}}


def find_line(tables: Tables) -> tuple[str, float]:
    """The line of a row in the chart, its model, and its x, the length."""
    options = MatchingOptions.from_tables(tables)
    return options.title, options.training.length


def list_published(rows: Sequence[RowResults], folder: Path) -> list[ResultTable]:
    """Our rows, and below them those of the paper, which are about another size of model."""
    body = [_describe_row(row) for row in rows]
    note = "Trained on and tested: examples for each seed or fold. In training: last quarter."
    heads = ("", "reads", "trained on", "tested", "accuracy", "in training")
    if any(row.get_fact("labels") for row in rows):
        share = max(row.get_fact("guess") or 0.0 for row in rows)
        note += f" Always the most frequent label: {100 * share:.1f} %."
        return [ResultTable("What was trained and tested", heads, tuple(body), note)]
    body += [
        (
            f"{name}, published",
            f"{length} tokens of two texts together",
            "pre-trained, CAIL2019-SCM",
            "validation / test",
            f"{validation:.2f} % / {test:.2f} %",
            "\u2013",
        )
        for name, length, validation, test in PUBLISHED
    ]
    note += (
        " Published: Su et al. 2021, RoFormer, table 5. These are models of 12 layers of width 768"
        " that were pre-trained on a large corpus and fine-tuned on all training triplets; ours are"
        " a thousand times smaller and have seen nothing but the triplets of this table."
    )
    return [ResultTable("Beside published results", heads, tuple(body), note), *_list_every(rows)]


def _list_every(rows: Sequence[RowResults]) -> list[ResultTable]:
    """What can be said of all triplets of a file, in folds or not; nothing for made ones."""
    mine = [row for row in rows if row.get_fact("every")]
    if not mine:
        return []
    body = [(row.name, f"{100 * (row.get_fact('every_accuracy') or 0):.1f} %") for row in mine]
    unread = mine[0].get_fact("unread") or 0.0
    body.append(("texts counted, A not read", f"{100 * unread:.1f} %"))
    note = (
        "tf-idf trains nothing, so that all triplets can be tested. The last row counts in four"
        " fifths of the triplets how often each text was the nearer one, and answers for the others"
        " without reading A. If it is well above 50 %, triplets share texts that give answers away:"
        " that is why no text is both trained on and tested here."
    )
    count = f"{mine[0].get_fact('every'):.0f}"
    return [ResultTable(f"All {count} triplets of the file", ("", "accuracy"), tuple(body), note)]


def _describe_row(row: RowResults) -> tuple[str, ...]:
    count = {name: row.get_fact(name) or 0.0 for name in ("trained_on", "tested", "length")}
    what = "labelled texts" if row.get_fact("labels") else "triplets"
    what = what if row.get_fact("file") else f"made {what}"
    value = estimate(list(row.get_values(_ACCURACY).values()))
    trained = row.get_fact("training_accuracy")
    learns = trained is not None or row.get_fact("labels")  # tf-idf has means of labels
    return (
        row.name,
        f"{count['length']:.0f} characters",
        f"{count['trained_on']:.0f} {what}" if learns else "nothing",
        f"{count['tested']:.0f} x {len(row.seeds)}",
        f"{100 * value.mean:.1f} %"
        if value.low is None or value.high is None
        else f"{100 * value.mean:.1f} % [{100 * value.low:.1f}, {100 * value.high:.1f}]",
        f"{100 * trained:.1f} %" if trained is not None else "\u2013",
    )


def _count_most_frequent(split: DataSplit) -> float:
    """The share of the most frequent right answer among the tested examples."""
    answers = [
        one.label if isinstance(one, LabelledText) else str(one.nearer) for one in split.test
    ]
    return max(answers.count(one) for one in set(answers)) / len(answers)


def _average(right: Sequence[bool]) -> float:
    return sum(right) / len(right)


EXPERIMENT = Experiment(
    name="matching",
    run_row=run_row,
    check_row=check_row,
    shorten_row=shorten_row,
    measures=(MeasureLabel(_ACCURACY, "accuracy", tied=0.02, accuracy=True),),
    quantities={
        _ACCURACY: CurveLabels(
            "Accuracy by the length that is read",
            "characters read of each text (log scale)",
            "accuracy (share of right answers)",
            "bands: 95 % intervals over seeds or folds",
            accuracy=True,
            log=True,
        )
    },
    curves={_LOSS: CurveLabels("How fast they learn", "step", "loss in training (nats)")},
    list_tables=list_published,
    find_line=find_line,
    describe_files=describe_files,
)
