// The panel of the section Explore: facts, neighbours, and where prediction and model disagree, as html elements.
const explorePanel = (() => {
  const SINGULAR = { tokens: "token", contexts: "context" };
  const SHARED = { tokens: "number of contexts that both follow", contexts: "number of next tokens that they share, without merged ones" };
  const MINUS = "−",
    DASH = "–";
  const LISTED = 12,
    RARE = 2 / 3,
    CLOSE = 0.4,
    UNLEARNED = 3,
    ROWS = 15,
    TIED = 4;

  // ---- text --------------------------------------------------------------------------------------------------------
  const fixed = (x, digits = 2) =>
    x === null || !Number.isFinite(x)
      ? DASH
      : (Math.round(x * 10 ** digits) / 10 ** digits + 0).toFixed(digits).replace("-", MINUS);
  const whole = (n) => n.toLocaleString("en-US");
  const counted = (n, thing) => `${whole(n)} ${thing}${n === 1 ? "" : "s"}`;
  const raised = (power) => [...power].map((c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c])).join("");

  // A number with two digits; small ones with a power of ten.
  function short(x) {
    if (x === null || !Number.isFinite(x)) return DASH;
    if (x === 0 || Math.abs(x) >= 0.001) return String(+x.toPrecision(2)).replace("-", MINUS);
    const [digits, power] = x.toExponential(1).split("e");
    return `${digits.replace("-", MINUS)}\u00a0×\u00a010${raised(power)}`;
  }
  const nats = (x) => `${short(x)} nats`;

  function percent(share) {
    if (share === null || !Number.isFinite(share)) return DASH;
    if (share > 0 && share < 0.00001) return "< 0.001%";
    return share > 0.999 && share < 1 ? "more than 99.9%" : `${+(100 * share).toPrecision(share < 0.001 ? 1 : 3)}%`;
  }

  // ---- elements: all text is set as text, never as markup ----------------------------------------------------------
  function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) if (value !== null) element.setAttribute(key, value);
    element.append(...children.filter((child) => child !== null));
    return element;
  }

  function table(caption, heads, rows, attributes = {}) {
    const head = heads.map(([text, numeric, long]) =>
      make("th", { scope: "col", class: numeric ? "num" : null }, long ? make("abbr", { title: long }, text) : text),
    );
    const body = rows.map((cells) =>
      make(
        "tr",
        {},
        ...cells.map((cell, k) =>
          make(k ? "td" : "th", { scope: k ? null : "row", class: heads[k][1] ? "num" : null }, cell),
        ),
      ),
    );
    return make(
      "table",
      attributes,
      make("caption", {}, ...caption),
      make("thead", {}, make("tr", {}, ...head)),
      make("tbody", {}, ...body),
    );
  }

  function create(data) {
    const { raw } = data,
      [present, absent] = data.predicts ? ["prediction", "model"] : ["model", "prediction"];

    // A name that selects its item.
    function nameButton(kind, item) {
      const full = exploreData.legible(data.name(kind, item));
      return make(
        "button",
        { type: "button", class: `explore-name ${kind}`, "data-kind": kind, "data-item": item, title: full },
        make("bdi", {}, data.shown(kind, item, kind === "tokens" ? 40 : 60)),
      );
    }

    // ---- facts -----------------------------------------------------------------------------------------------------
    function facts(kind, item) {
      const rank = data.shareRanks(kind)[item] + 1,
        share = data.share(kind, item);
      const rows = [
        [
          raw.counted ? "share of the text's windows" : "share of the weight",
          `${percent(share)} (rank ${whole(rank)} of ${whole(data.count(kind))})`,
        ],
      ];
      const supports = exploreData.value(raw[kind].supports, item);
      if (kind === "tokens") rows.push(["follows", counted(supports, "context")]);
      else {
        const named = data.hasMerged(item) ? `${counted(supports - 1, "token")} and merged ones` : counted(supports, "token");
        rows.push(["followed by", named], ["same support", groupFact(item)]);
      }
      return make(
        "dl",
        { class: "explore-facts" },
        ...rows.map(([term, text]) => make("div", {}, make("dt", {}, term), make("dd", {}, ...[text].flat()))),
      );
    }

    function groupFact(item) {
      if (data.groupOf(item) < 0) return "every token may follow";
      const others = data.sameSupport(item).filter((j) => j !== item);
      if (!others.length) return "no other context shown";
      const named = others.slice(0, 4).flatMap((j) => [nameButton("contexts", j), " "]);
      return [
        `${counted(others.length, "other context")}: `,
        ...named,
        others.length > 4 ? `and ${whole(others.length - 4)} more` : "",
      ];
    }

    function supportTable(kind, item) {
      const other = kind === "tokens" ? "contexts" : "tokens",
        all = kind === "tokens" ? data.contextsOf(item) : data.nextTokens(item);
      if (!all.length)
        return make(
          "p",
          { class: "quiet" },
          kind === "tokens" ? "It follows none of the contexts shown." : "None of the tokens shown follows it.",
        );
      const withCounts = raw.follows.counts !== null;
      const heads = [
        [SINGULAR[other]],
        [kind === "tokens" ? "share there" : "share", true, "share of all windows of the context in the text"],
        ...(withCounts ? [["windows", true]] : []),
      ];
      const rows = all
        .slice(0, LISTED)
        .map((one) => [nameButton(other, one.item), percent(one.share), ...(withCounts ? [whole(one.count)] : [])]);
      const total = exploreData.value(raw[kind].supports, item),
        left = total - rows.length;
      const caption = kind === "tokens" ? "Contexts that it follows" : "Next tokens";
      return make(
        "div",
        {},
        table([caption], heads, rows, { class: "explore-supports" }),
        left > 0 ? make("p", { class: "quiet" }, `and ${whole(left)} more`) : null,
      );
    }

    // ---- neighbours ------------------------------------------------------------------------------------------------
    // Neighbours in one source, each with both cosines and the number of shared supports.
    function nearest(kind, item, now, side) {
      const source = side === "predicted" ? now.source : now.model?.source;
      if (source === undefined) return [];
      return data.neighbours(source, kind, item).map((one) => ({
        ...one,
        ...data.pair(now.model, now.source, kind, item, one, side),
        shared: data.shared(kind, item, one.item),
      }));
    }

    function neighbourTable(kind, item, now, side) {
      const rows = nearest(kind, item, now, side);
      const caption = [
        `Nearest in the ${side === "predicted" ? present : "model"}`,
        make("span", { class: "quiet" }, side === "predicted" ? ` ${now.place}` : ` ${now.model.label}`),
      ];
      if (!rows.length) return make("p", { class: "quiet" }, `${caption[0]}: no neighbours are stored.`);
      const heads = [
        [SINGULAR[kind]],
        data.predicts ? ["pred.", true, "predicted cosine"] : ["cosine", true],
        ...(now.model ? [["meas.", true, "measured cosine"]] : []),
        ["shared", true, SHARED[kind]],
      ];
      return table(
        caption,
        heads,
        rows.map((one) => [
          nameButton(kind, one.item),
          fixed(one.predicted),
          ...(now.model ? [fixed(one.measured)] : []),
          whole(one.shared),
        ]),
        { class: "explore-near", "data-side": side },
      );
    }

    // ---- features that contexts share, where they are tied -----------------------------------------------------------
    // The nearest contexts of the tables above, and what features that they share with a context give of the cosine.
    function tiesTable(item, now) {
      const own = data.tiedPair(item, item);
      if (!own) return null;
      const near = ["predicted", "measured"].flatMap((side) => nearest("contexts", item, now, side).slice(0, TIED));
      const rows = [...new Set(near.map((one) => one.item))]
        .map((other) => ({ other, pair: data.tiedPair(item, other) }))
        .filter(({ pair }) => pair)
        .sort((a, b) => b.pair.cosine - a.pair.cosine)
        .map(({ other, pair }) => [
          nameButton("contexts", other),
          fixed(pair.cosine),
          fixed(pair.cosine - pair.others),
          pair.shared.map(feature).join(", ") || "none",
        ]);
      const heads = [
        ["context"],
        ["cosine", true, "predicted with ties"],
        ["shared", true, "what features that both have give of it; the rest is from different features, by what follows them"],
        ["features that both have"],
      ];
      return make(
        "div",
        { class: "explore-ties" },
        make("h4", {}, "Contexts tied by their tokens"),
        make("p", {}, `Its features, with their shares of its squared length: ${own.shared.map(feature).join(", ")}; pairs of them ${fixed(own.others)}.`),
        rows.length ? table(["Nearest contexts with ties"], heads, rows, { class: "explore-shared" }) : null,
      );
    }

    const feature = ({ name, kind, part }) => `${exploreData.legible(name)} (${kind}) ${fixed(part)}`;

    // ---- disagreement ----------------------------------------------------------------------------------------------
    // What the supports say about a pair whose cosines differ.
    function supportReason(kind, item, { item: other, predicted, measured }) {
      const all = data.support(kind, item).size,
        both = data.shared(kind, item, other);
      const same =
        kind === "contexts"
          ? both === 1 && exploreData.value(raw.contexts.supports, item) === 1
            ? "its only next token also follows the other"
            : `${whole(both)} of its ${whole(all)} next tokens${data.hasMerged(item) ? " (merged ones left out)" : ""} also ${both === 1 ? "follows" : "follow"} the other`
          : `${whole(both)} of the ${counted(all, "context")} that it follows ${both === 1 ? "is" : "are"} shared`;
      if (kind === "contexts" && data.groupOf(item) >= 0 && data.groupOf(item) === data.groupOf(other))
        return "both have the same support, so the prediction in the limit gives them one direction.";
      if (!both && kind === "contexts" && [item, other].every(data.hasMerged))
        return "no next token is shared, but merged ones follow both, and these count as one token.";
      if (!both) {
        const none = kind === "contexts" ? "no next token is shared" : "no context is shared";
        if (predicted < measured && measured > CLOSE)
          return `${none}, so the prediction has no direct reason to place them close.`;
        if (predicted < measured) return `${none}; the prediction places them further apart than the model does.`;
        return predicted > CLOSE ? `${none}; the supports of other ${kind} bring them together.` : `${none}.`;
      }
      if (predicted > measured)
        return 2 * both >= all && predicted > CLOSE ? `${same}, so the prediction places them close.` : `${same}.`;
      if (2 * both >= all) return `${same}.`;
      return predicted < CLOSE ? `only ${same}, so the prediction places them apart.` : `only ${same}.`;
    }

    function worstList(kind, item, model) {
      const rows = data
        .worst(model, kind, item)
        .map((one) =>
          make(
            "li",
            {},
            nameButton(kind, one.item),
            ` predicted ${fixed(one.predicted)}, measured ${fixed(one.measured)}: ${supportReason(kind, item, one)}`,
          ),
        );
      return rows.length ? make("ul", { class: "explore-worst" }, ...rows) : null;
    }

    function lossReason(kind, item, model) {
      const median = data.medianLoss(model),
        own = kind === "contexts" ? data.loss(model, item) : data.lossAround(model, item);
      if (median === null || own === null) return null;
      const where = kind === "contexts" ? "this context" : "the contexts that it follows";
      const average = kind === "tokens" ? " on average" : "";
      const numbers = `${nats(own)} above the lowest possible loss${average}, median of all contexts ${nats(median)}`;
      if (own > UNLEARNED * median && own > 0.001) return `The model has not fully learned ${where} yet: ${numbers}.`;
      const how = own > median ? "somewhat less well than most" : "no worse than most";
      return `The model has learned ${where} ${how}: ${numbers}.`;
    }

    function rarity(kind, item) {
      const before = data.shareRanks(kind)[item] / data.count(kind);
      if (before < RARE || data.count(kind) < 4) return null;
      const share = `${percent(data.share(kind, item))} of the ${raw.counted ? "text's windows" : "weight"}`;
      return `It is rare: ${share}, and ${percent(before)} of the ${kind} are more frequent.`;
    }

    function disagreementSentence(kind, item, model) {
      const own = data.disagreement(model, kind, item),
        order = data.mostWrong(model, kind);
      if (own === null)
        return "The disagreement is not defined here: its cosines do not vary in the prediction or in the model.";
      const median = data.disagreement(model, kind, order[Math.floor(order.length / 2)]);
      const rank = `rank ${whole(order.indexOf(item) + 1)} of ${counted(order.length, SINGULAR[kind])}`;
      return `Disagreement ${fixed(own, 3)}, ${rank} (median ${fixed(median, 3)}).`;
    }

    function disagreement(kind, item, now) {
      const { model } = now,
        others = worstList(kind, item, model);
      const judged =
        now.source === model.predicted
          ? null
          : ` These numbers compare the model with “${raw.sources[model.predicted].label}”.`;
      const reasons = [lossReason(kind, item, model), rarity(kind, item)].filter(Boolean);
      return make(
        "div",
        { class: "explore-why" },
        make("h4", {}, "Where prediction and model disagree"),
        make("p", {}, disagreementSentence(kind, item, model), judged),
        others ? make("p", {}, "Largest differences:") : null,
        others,
        ...reasons.map((text) => make("p", {}, text)),
      );
    }

    // ---- the whole panel -------------------------------------------------------------------------------------------
    function item(kind, at, now) {
      const title = make(
        "h3",
        {},
        make("span", { class: "explore-kind" }, SINGULAR[kind]),
        " ",
        make("bdi", { title: exploreData.legible(data.name(kind, at)) }, data.shown(kind, at, 120)),
      );
      const tables = ["predicted", ...(now.model ? ["measured"] : [])].map((side) =>
        make("div", {}, neighbourTable(kind, at, now, side)),
      );
      const why = now.model
        ? disagreement(kind, at, now)
        : make("p", { class: "quiet" }, `No ${absent} is on this page, so there is nothing to compare with.`);
      return [
        title,
        facts(kind, at),
        why,
        make("div", { class: `explore-tables ${kind}` }, ...tables),
        supportTable(kind, at),
        kind === "contexts" ? tiesTable(at, now) : null,
      ].filter(Boolean);
    }

    function largest(now) {
      const tables = ["contexts", "tokens"].map((kind) => {
        const order = data.mostWrong(now.model, kind).slice(0, ROWS),
          losses = kind === "contexts" && data.medianLoss(now.model) !== null;
        if (!order.length) return make("p", { class: "quiet" }, `No disagreement is defined for the ${kind}.`);
        const heads = [
          [SINGULAR[kind]],
          ["disagreement", true],
          ["share", true],
          ...(losses ? [["loss gap", true, "loss above the lowest possible, nats"]] : []),
        ];
        const rows = order.map((i) => [
          nameButton(kind, i),
          fixed(data.disagreement(now.model, kind, i), 3),
          percent(data.share(kind, i)),
          ...(losses ? [short(data.loss(now.model, i))] : []),
        ]);
        return table([`${kind[0].toUpperCase()}${kind.slice(1)}`], heads, rows, {
          class: "explore-largest",
          "data-kind": kind,
        });
      });
      return [
        make("h3", {}, "Largest disagreements"),
        make(
          "p",
          { class: "quiet" },
          `Between ${now.model.label} and “${raw.sources[now.model.predicted].label}”: `,
          "1 minus the correlation of an item's predicted and measured cosines with all others. ",
          "Choose one to see why.",
        ),
        ...tables,
      ];
    }

    function empty(now) {
      return [
        make("h3", {}, "Nothing is selected"),
        make(
          "p",
          {},
          "Search for a token or a context, or choose a mark on the map. ",
          "Its neighbours, its supports, and where prediction and model disagree are shown here.",
        ),
        now.model
          ? null
          : make("p", { class: "quiet" }, `No ${absent} is on this page, so only the ${present} is shown.`),
      ].filter(Boolean);
    }

    // One sentence for screen readers.
    function spoken(kind, at, now) {
      const near = (side) => {
        const [first] = nearest(kind, at, now, side);
        return first ? `${data.shown(kind, first.item)} (cosine ${fixed(first[side])})` : "none";
      };
      const measured = now.model
        ? `, in the model ${near("measured")}. ${disagreementSentence(kind, at, now.model)}`
        : ".";
      const name = `the ${SINGULAR[kind]} ${data.shown(kind, at)}`;
      return `Selected ${name}: nearest in the ${present} ${near("predicted")}${measured}`;
    }

    return { item, largest, empty, spoken, nearest };
  }

  return { create, make, fixed, percent, short, nats, counted, whole, SINGULAR };
})();
