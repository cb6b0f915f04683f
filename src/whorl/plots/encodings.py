"""Charts of any encoding: biases of heads, permutation test, report card, trained heads."""

from collections.abc import Mapping
from typing import Any

from whorl.analysis.attended import label_bin

from . import _numbers
from ._draw import add_title, format_number, import_altair, list_colors, make_chart
from ._entry import chart
from ._series import move_apart

_HEIGHT = 300
_MOST_LABELLED = 16  # heads with labels at the ends of their lines; more get a legend
_TEXT_COLOR = "#1A1D21"

# Light colours, on which dark text can be read on any page.
_VERDICT_COLORS = {
    "yes": "#A9D6F2",
    "partly": "#F4EC8C",
    "no": "#F3C878",
    "does not apply": "#C9CDD2",
}


@chart("bias", group="any encoding", numbers=_numbers.compute_bias)
def bias(found: Mapping[str, Any]) -> Any:
    """Bias by distance, per head."""
    alt = import_altair()
    heads = len(found["curves"])
    rows = [
        {"distance": d, "bias": value, "head": h}
        for h, curve in enumerate(found["curves"])
        for d, value in zip(found["distances"], curve, strict=True)
    ]
    named = heads <= _MOST_LABELLED
    colour = alt.Color("head:O", title="head", sort=list(range(heads))).scale(
        domain=list(range(heads)), range=list_colors(heads)
    )
    colour = colour.legend(
        None
        if named
        else alt.Legend(columns=-(-heads // 16), symbolLimit=heads, symbolType="stroke")
    )
    values = [row["bias"] for row in rows]
    flat = max(values) - min(values) < 1e-12
    note = "trained numbers as they start" if found["trained_parameters"] else "nothing is trained"
    if flat:
        note += f"; every bias is {values[0]:g}: it adds nothing by distance yet"
    future = found["distances"][0] < 0
    words = "distance i - j (tokens; below 0: keys to come)" if future else "distance (tokens)"
    chart = (
        make_chart(rows)
        .mark_line(strokeWidth=1.8)
        .encode(
            alt.X("distance:Q", title=words).scale(nice=False).axis(grid=False, format=",d"),
            alt.Y("bias:Q", title="added to the score (logits)"),
            colour,
            tooltip=["head:Q", "distance:Q", "bias:Q"],
        )
    )
    layers = [chart, *(_label_heads(found) if named else ())]
    chart = alt.layer(*layers).properties(width=540, height=_HEIGHT)
    return add_title(chart, "Bias by distance, head by head", found["encoding"], note)


def _label_heads(found: Mapping[str, Any]) -> list[Any]:
    """Labels of heads at the ends of their lines, moved apart where they would overlap."""
    last = found["distances"][-1]
    values = [value for curve in found["curves"] for value in curve]
    low, high = min(*values, 0.0), max(*values, 0.0)
    step = ((high - low) or 1.0) * 14 / _HEIGHT
    ends = sorted(((curve[-1], h) for h, curve in enumerate(found["curves"])), reverse=True)
    positions = move_apart([value for value, _ in ends], step, low)
    rows = [
        {"distance": last, "bias": value, "label": position, "words": f"head {h}", "head": h}
        for (value, h), position in zip(ends, positions, strict=True)
    ]
    base = make_chart(rows).encode(x="distance:Q")
    leader = base.mark_rule(x2Offset=16, strokeWidth=1.2).encode(
        y="bias:Q", y2="label:Q", x2="distance:Q", color="head:O"
    )
    text = base.mark_text(align="left", dx=20).encode(y="label:Q", text="words:N")
    return [leader, text]


@chart("permutation", group="any encoding", numbers=_numbers.compute_permutation)
def permutations(found: Mapping[str, Any]) -> Any:
    """Do outputs notice shuffled tokens?

    Change of outputs when tokens are shuffled, for each encoding.
    """
    alt = import_altair()
    pairs = sorted(zip(found["names"], found["changes"], strict=True), key=lambda pair: pair[1])
    blind = 1e-9
    rows = [
        {"name": n, "change": c, "words": "blind to order" if c < blind else f"{c:.2g}"}
        for n, c in pairs
    ]
    order = [row["name"] for row in rows]
    base = make_chart(rows).encode(
        alt.X("change:Q", title="change of outputs, relative to the largest").axis(format="~g"),
        alt.Y("name:N", title=None, sort=order),
    )
    text = base.mark_text(align="left", dx=6).encode(text="words:N")
    chart = alt.layer(base.mark_bar(height=13), text).properties(width=460, height=alt.Step(22))
    return add_title(
        chart,
        "Shuffle the tokens: do outputs notice?",
        "attention without a causal mask; random numbers in position of trained ones",
        f"left out, being for causal attention only: {', '.join(found['left_out'])}"
        if found["left_out"]
        else "",
    )


@chart("attention", group="a model", numbers=_numbers.compute_attention)
def attended(found: Mapping[str, Any]) -> Any:
    """How far each head of a trained model looks.

    Share of attention by distance, for each head of a model.
    """
    alt = import_altair()
    labels = [label_bin(low, high) for low, high in found["bins"]]
    rows = [
        {
            "who": f"{head['layer']}.{head['head']}",
            "bin": label,
            "share": share,
            "mean distance": head["mean_distance"],
        }
        for head in found["heads"]
        for label, share in zip(labels, head["shares"], strict=True)
    ]
    rows += [
        {"who": "uniform", "bin": label, "share": share}
        for label, share in zip(labels, found["uniform"], strict=True)
    ]
    who = [*dict.fromkeys(row["who"] for row in rows if row["who"] != "uniform"), "uniform"]
    chart = (
        make_chart(rows)
        .mark_rect()
        .encode(
            alt.X("bin:N", title="distance (tokens)", sort=labels).axis(labelAngle=0, grid=False),
            alt.Y("who:N", title="layer.head", sort=who),
            alt.Color("share:Q", title="share of attention")
            .scale(scheme="viridis", domain=[0, max(row["share"] for row in rows)])
            .legend(format=".0%", gradientLength=160),
            tooltip=["who:N", "bin:N", alt.Tooltip("share:Q", format=".1%"), "mean distance:Q"],
        )
        .properties(width=alt.Step(46), height=alt.Step(18 if len(who) <= 40 else 8))
    )
    first = sum(head["first_token"] for head in found["heads"]) / len(found["heads"])
    return add_title(
        chart,
        "How far each head looks",
        found["name"],
        f"second half of {format_number(found['length'])} tokens; the first token gets {first:.0%}"
        " on average",
    )


@chart("properties", group="any encoding", numbers=_numbers.compute_properties)
def properties(found: Mapping[str, Any]) -> Any:
    """The report card of whorl properties.

    The report card as a table of verdicts and evidence.
    """
    alt = import_altair()
    rows = [
        {
            "name": row["name"],
            "property": key,
            "verdict": verdict,
            "words": row["evidence"][key],
            "kind": _group_verdict(verdict),
        }
        for row in found["rows"]
        for key, verdict in row["verdicts"].items()
    ]
    names = [row["name"] for row in found["rows"]]
    keys = list(dict.fromkeys(row["property"] for row in rows))
    shown = [kind for kind in _VERDICT_COLORS if any(row["kind"] == kind for row in rows)]
    parts = []
    for part in (keys[:4], keys[4:]):
        base = make_chart([row for row in rows if row["property"] in part]).encode(
            alt.X("property:N", title=None, sort=part).axis(
                orient="top", labelAngle=0, labelFontWeight=600, domain=False, ticks=False
            ),
            alt.Y("name:N", title=None, sort=names),
        )
        cells = base.mark_rect(stroke="white", strokeWidth=1.5).encode(
            alt.Color("kind:N", title=None, sort=shown)
            .scale(domain=shown, range=[_VERDICT_COLORS[kind] for kind in shown])
            .legend(orient="bottom", symbolType="square")
        )
        verdict = base.mark_text(dy=-7, fontSize=12, fontWeight=600, color=_TEXT_COLOR)
        words = base.mark_text(dy=7, fontSize=11.5, color=_TEXT_COLOR)
        layers = (cells, verdict.encode(text="verdict:N"), words.encode(text="words:N"))
        parts.append(alt.layer(*layers).properties(width=alt.Step(134), height=alt.Step(34)))
    return add_title(
        alt.vconcat(*parts, spacing=18),
        "Report card: measured on the modules",
        f"{found['num_heads']} heads of {found['head_dim']}; {found['length']} positions; random"
        " numbers in position of trained ones",
        *(
            f"{key}, yes: {found['rules'][key].partition(';')[0]}"
            for key in ("extrapolates", "decays")
        ),
    )


def _group_verdict(verdict: str) -> str:
    if verdict in ("with scaling", "causal", "trained", "partly"):
        return "partly"
    return "does not apply" if verdict == "untouched" else verdict
