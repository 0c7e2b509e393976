"use strict";
// Data of the section Explore: packed arrays, names, search, supports, and cosines. Nothing here touches the page.
const exploreData = (() => {
  const KINDS = ["tokens", "contexts"];
  const ARRAYS = {
    int8: Int8Array,
    int16: Int16Array,
    int32: Int32Array,
    uint8: Uint8Array,
    uint16: Uint16Array,
    uint32: Uint32Array,
    float32: Float32Array,
  };
  const MISSING = -32768;
  const NO_NAME = "(empty)";

  // ---- packed arrays, decoded on first use -------------------------------------------------------------------------
  const decoded = new WeakMap();

  function numbers(pack) {
    if (!pack) return null;
    if (!decoded.has(pack)) {
      const text = atob(pack.packed),
        bytes = new Uint8Array(text.length);
      for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
      decoded.set(pack, new ARRAYS[pack.type](bytes.buffer));
    }
    return decoded.get(pack);
  }

  const step = (pack) => pack.step ?? 1;
  const width = (pack) => pack.shape[1] ?? 1;

  // Value of an array, or null where the data hold none.
  function value(pack, row, column = 0) {
    const found = numbers(pack)?.[row * (pack ? width(pack) : 1) + column];
    const none = found === undefined || Number.isNaN(found) || (found === MISSING && pack.type === "int16");
    return none ? null : found * step(pack);
  }

  // ---- names -------------------------------------------------------------------------------------------------------
  const escapes = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };
  // As Python prints them: \x1b below 256, \u200b above.
  const padded = (code, digits) => code.toString(16).padStart(digits, "0");
  const hexadecimal = (code) => (code < 256 ? `\\x${padded(code, 2)}` : `\\u${padded(code, 4)}`);
  const escaped = (c) => escapes[c] ?? hexadecimal(c.codePointAt(0));
  // A joiner or non-joiner inside a word that is not in Latin letters is part of its spelling.
  const JOINER = "(?<=[^\\x00-\\x7f\\u200c\\u200d])[\\u200c\\u200d](?=[^\\x00-\\x7f\\u200c\\u200d])";
  const UNSEEN = new RegExp(`(?!${JOINER})[\\p{Cc}\\p{Cf}\\p{Zl}\\p{Zp}\\p{Cs}\\p{Co}]`, "gu");

  // A name with its invisible characters made visible.
  function legible(name) {
    const inner = name.replace(/^ +| +$/g, (spaces) => "␣".repeat(spaces.length));
    return inner.replace(UNSEEN, escaped) || NO_NAME;
  }

  function shortened(text, most) {
    const letters = [...text];
    if (letters.length <= most) return text;
    const head = Math.floor((most - 1) / 2);
    return `${letters.slice(0, head).join("")}…${letters.slice(letters.length - (most - 1 - head)).join("")}`;
  }

  // Case, accents and compatibility forms are forgiven; a name of combining marks alone keeps them.
  function folded(text) {
    const plain = text.toLowerCase().normalize("NFKD").replace(/\s+/g, " ").trim();
    return plain.replace(/\p{M}/gu, "").replaceAll("ß", "ss").replaceAll("ς", "σ") || plain;
  }

  // ---- one object for all questions --------------------------------------------------------------------------------
  function read(raw) {
    const cache = new Map();
    const once = (key, make) => (cache.has(key) ? cache : cache.set(key, make())).get(key);
    const count = (kind) => raw[kind].names.length;
    const name = (kind, item) => raw[kind].names[item];
    const shown = (kind, item, most = 60) => shortened(legible(name(kind, item)), most);
    const share = (kind, item) => value(raw[kind].share, item);
    const onPath = raw.path?.length ? raw.path : [raw.models[0]?.predicted ?? 0];

    // ---- frequency -------------------------------------------------------------------------------------------------
    const byShare = (kind) =>
      once(`order ${kind}`, () =>
        Array.from({ length: count(kind) }, (_, i) => i).sort((a, b) => share(kind, b) - share(kind, a) || a - b),
      );
    const shareRanks = (kind) =>
      once(`ranks ${kind}`, () => {
        const ranks = new Uint32Array(count(kind));
        byShare(kind).forEach((item, rank) => {
          ranks[item] = rank;
        });
        return ranks;
      });

    // ---- search ----------------------------------------------------------------------------------------------------
    const index = () =>
      once("index", () =>
        KINDS.flatMap((kind) =>
          byShare(kind).map((item) => ({
            kind,
            item,
            name: name(kind, item),
            folded: folded(name(kind, item)),
            seen: legible(name(kind, item)).toLowerCase(),
          })),
        ),
      );

    function grade(entry, text, key) {
      if (entry.name === text) return 0;
      if (entry.folded === key) return 1;
      if (key && entry.folded.startsWith(key)) return 2;
      if (key && entry.folded.includes(` ${key}`)) return 3;
      return (key && entry.folded.includes(key)) || (text && entry.seen.includes(text.toLowerCase())) ? 4 : 5;
    }

    function search(text, most = 12) {
      const key = folded(text),
        found = [[], [], [], [], []];
      for (const entry of index()) {
        const at = text === "" ? 0 : grade(entry, text, key);
        if (at < 5) found[at].push(entry);
      }
      for (const list of found) list.sort((a, b) => share(b.kind, b.item) - share(a.kind, a.item));
      return found.flat().slice(0, most);
    }

    function find(kind, text) {
      const exact = raw[kind].names.indexOf(text);
      if (exact >= 0) return exact;
      const key = folded(text);
      return index().find((entry) => entry.kind === kind && entry.folded === key)?.item ?? -1;
    }

    // ---- features of contexts, where these are tied: the vector of a context is the sum of theirs -------------------
    const featureVectors = () =>
      once("features", () => {
        const { values, steps } = raw.ties.vectors,
          d = width(values),
          rows = Float32Array.from(numbers(values)),
          each = numbers(steps);
        for (let i = 0; i < rows.length; i++) rows[i] *= each[Math.floor(i / d)];
        return { d, rows };
      });

    function featuresOf(context) {
      const starts = raw.ties ? numbers(raw.ties.starts) : [];
      return context + 1 < starts.length
        ? [...numbers(raw.ties.features).slice(starts[context], starts[context + 1])]
        : [];
    }

    function tiedVector(context) {
      const { d, rows } = featureVectors(),
        sum = new Float64Array(d);
      for (const f of featuresOf(context)) for (let k = 0; k < d; k++) sum[k] += rows[f * d + k];
      return sum;
    }

    // The cosine of two contexts with ties, what each feature gives that both have, and what different ones give.
    function tiedPair(a, b) {
      const ours = featuresOf(a),
        theirs = new Set(featuresOf(b));
      if (!ours.length || !theirs.size) return null;
      const { d, rows } = featureVectors(),
        dot = (x, y) => x.reduce((sum, each, k) => sum + each * y[k], 0),
        [h, g] = [tiedVector(a), tiedVector(b)],
        size = Math.sqrt(dot(h, h) * dot(g, g));
      if (!(size > 0)) return null;
      const own = (f) => rows.subarray(f * d, (f + 1) * d);
      const both = ours
        .filter((f) => theirs.has(f))
        .map((f) => ({ kind: raw.ties.kinds[f], name: raw.ties.names[f], part: dot(own(f), own(f)) / size }))
        .sort((x, y) => y.part - x.part);
      const cosine = dot(h, g) / size;
      return { cosine, shared: both, others: cosine - both.reduce((sum, { part }) => sum + part, 0) };
    }

    // ---- supports: next tokens of a context, contexts that a token follows -----------------------------------------
    function nextTokens(context) {
      const starts = numbers(raw.follows.starts),
        tokens = numbers(raw.follows.tokens),
        found = [];
      for (let k = starts[context]; k < starts[context + 1]; k++) {
        found.push({ item: tokens[k], share: value(raw.follows.shares, k), count: value(raw.follows.counts, k) });
      }
      return found;
    }

    const inverse = () =>
      once("inverse", () => {
        const starts = numbers(raw.follows.starts),
          tokens = numbers(raw.follows.tokens);
        const lists = Array.from({ length: count("tokens") }, () => []);
        for (let j = 0; j < count("contexts"); j++)
          for (let k = starts[j]; k < starts[j + 1]; k++) lists[tokens[k]].push([j, k]);
        return lists;
      });

    function contextsOf(token) {
      const found = inverse()[token].map(([item, k]) => ({
        item,
        share: value(raw.follows.shares, k),
        count: value(raw.follows.counts, k),
      }));
      return found.sort((a, b) => b.share * share("contexts", b.item) - a.share * share("contexts", a.item));
    }

    // Without the token for merged ones: it may be another token after each context, so that none is shared by it.
    const support = (kind, item) =>
      once(
        `support ${kind} ${item}`,
        () =>
          new Set(
            kind === "tokens"
              ? inverse()[item].map(([j]) => j)
              : nextTokens(item)
                  .map((one) => one.item)
                  .filter((token) => token !== raw.tokens.other),
          ),
      );

    const hasMerged = (context) => nextTokens(context).some((one) => one.item === raw.tokens.other);

    function shared(kind, a, b) {
      let both = 0;
      const other = support(kind, b);
      for (const one of support(kind, a)) if (other.has(one)) both += 1;
      return both;
    }

    const groupOf = (context) => numbers(raw.contexts.group)[context];
    const sameSupport = (context) =>
      groupOf(context) < 0
        ? []
        : Array.from({ length: count("contexts") }, (_, j) => j).filter((j) => groupOf(j) === groupOf(context));

    // ---- neighbours and cosines ------------------------------------------------------------------------------------
    function neighbours(source, kind, item) {
      const part = raw.sources[source][kind],
        found = [];
      for (let k = 0; k < width(part.neighbours); k++) {
        const cosine = value(part.cosines, item, k);
        if (cosine !== null)
          found.push({ item: numbers(part.neighbours)[item * width(part.neighbours) + k], cosine, rank: k });
      }
      return found;
    }

    // Cosine of two items in a source, where the data hold it: among neighbours, or in the heat-map.
    function cosine(source, kind, a, b) {
      for (const [one, other] of [
        [a, b],
        [b, a],
      ]) {
        const found = neighbours(source, kind, one).find((each) => each.item === other);
        if (found) return found.cosine;
      }
      const order = raw.heat?.[kind] ?? [],
        i = order.indexOf(a),
        j = order.indexOf(b);
      const heat = raw.sources[source].heat?.[kind];
      return i < 0 || j < 0 || !heat ? null : value(heat, i, j);
    }

    // Both cosines of a neighbour; those of the judged prediction and the model are stored for every neighbour.
    function pair(model, source, kind, item, { item: other, cosine: own, rank }, side) {
      if (!model) return { predicted: own, measured: null };
      const judged = source === model.predicted,
        part = model[kind];
      if (side === "predicted") {
        const measured = judged ? value(part.at_predicted, item, rank) : null;
        return { predicted: own, measured: measured ?? cosine(model.source, kind, item, other) };
      }
      const predicted = judged ? value(part.at_measured, item, rank) : null;
      return { predicted: predicted ?? cosine(source, kind, item, other), measured: own };
    }

    function worst(model, kind, item) {
      const part = model[kind],
        items = numbers(part.worst),
        columns = width(part.worst),
        found = [];
      for (let k = 0; k < columns; k++) {
        const predicted = value(part.worst_predicted, item, k),
          measured = value(part.worst_measured, item, k);
        if (predicted !== null && measured !== null)
          found.push({ item: items[item * columns + k], predicted, measured });
      }
      return found;
    }

    // ---- disagreement and loss -------------------------------------------------------------------------------------
    const disagreement = (model, kind, item) => value(model[kind].disagreement, item);
    const mostWrong = (model, kind) =>
      once(`wrong ${raw.models.indexOf(model)} ${kind}`, () =>
        Array.from({ length: count(kind) }, (_, i) => i)
          .filter((i) => disagreement(model, kind, i) !== null)
          .sort((a, b) => disagreement(model, kind, b) - disagreement(model, kind, a)),
      );
    const loss = (model, context) =>
      raw.sources[model.source].loss ? value(raw.sources[model.source].loss, context) : null;
    const medianLoss = (model) =>
      once(`median ${model.source}`, () => {
        const all = [...(numbers(raw.sources[model.source].loss) ?? [])].filter(Number.isFinite).sort((a, b) => a - b);
        return all.length ? (all[(all.length - 1) >> 1] + all[all.length >> 1]) / 2 : null;
      });

    // Mean loss of the contexts that a token follows, weighted by how often it follows each.
    function lossAround(model, token) {
      let sum = 0,
        weight = 0;
      for (const one of contextsOf(token)) {
        const gap = loss(model, one.item),
          w = one.share * share("contexts", one.item);
        if (gap !== null) {
          sum += w * gap;
          weight += w;
        }
      }
      return weight > 0 ? sum / weight : null;
    }

    // ---- the path --------------------------------------------------------------------------------------------------
    // Sources on both sides of a position on the path, and how far the position is from the first to the second.
    function between(position) {
      const low = Math.min(Math.max(Math.floor(position), 0), onPath.length - 1),
        high = Math.min(low + 1, onPath.length - 1);
      const t = high === low ? 0 : Math.min(Math.max(position - low, 0), 1);
      return { a: onPath[low], b: t === 0 ? onPath[low] : onPath[high], t };
    }

    // Loss gap at a position; null where it cannot be said (between the last point and the limit, or not known).
    function gapAt(position) {
      const { a, b, t } = between(position),
        first = raw.sources[a].gap,
        second = raw.sources[b].gap;
      if (t === 0 || a === b) return first;
      return first > 0 && second > 0 ? first ** (1 - t) * second ** t : null;
    }

    return {
      raw,
      path: onPath,
      // Whether anything was predicted: else a model stands in its place.
      predicts: (raw.path?.length ?? 0) > 0,
      count,
      name,
      shown,
      share,
      byShare,
      shareRanks,
      search,
      find,
      nextTokens,
      contextsOf,
      support,
      hasMerged,
      shared,
      groupOf,
      sameSupport,
      neighbours,
      cosine,
      tiedPair,
      pair,
      worst,
      disagreement,
      mostWrong,
      loss,
      medianLoss,
      lossAround,
      between,
      gapAt,
    };
  }

  return { KINDS, MISSING, read, numbers, value, step, legible, shortened, folded };
})();
