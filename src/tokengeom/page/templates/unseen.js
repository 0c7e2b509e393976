"use strict";
// The box of the section on contexts that the text does not have: features of what is typed, and the sum of their vectors.
(() => {
  const ABSENT = 0,
    UNKNOWN = -1,
    SHOWN = 8;
  const ARRAYS = { int8: Int8Array, uint16: Uint16Array, uint32: Uint32Array, float32: Float32Array };
  const WORDS = /[\p{L}\p{N}\p{M}_]+(?:['’][\p{L}\p{N}\p{M}_]+)*|\S/gu;
  const element = document.getElementById("unseen-data");
  if (!element) return;
  const raw = JSON.parse(element.textContent),
    query = document.getElementById("unseen-query"),
    said = document.getElementById("unseen-said"),
    answer = document.getElementById("unseen-answer");

  function numbers(pack) {
    const text = atob(pack.packed),
      bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    return new ARRAYS[pack.type](bytes.buffer);
  }

  // ---- vectors and features, made when the box is first used -------------------------------------------------------
  function prepare() {
    const [all, L] = raw.contexts.shape,
      m = raw.labels.length,
      d = raw.tokens.values.shape[1];
    const vectors = ({ values, steps }) => {
      const rows = Float32Array.from(numbers(values)),
        each = numbers(steps);
      for (let i = 0; i < rows.length; i++) rows[i] *= each[Math.floor(i / d)];
      return rows;
    };
    const W = vectors(raw.tokens),
      A = vectors(raw.features),
      weights = numbers(raw.gain).map((x) => x * x);
    const key = (codes, [last, first]) => `${last},${first}:${codes.slice(L - 1 - first, L - last)}`;
    // Features are numbered span by span.
    const features = new Map();
    for (const { span, tokens } of raw.spans) {
      const [count, size] = tokens.shape,
        codes = numbers(tokens);
      for (let f = 0; f < count; f++) features.set(`${span}:${codes.slice(f * size, (f + 1) * size)}`, features.size);
    }
    const contexts = numbers(raw.contexts),
      H = new Float32Array(m * d),
      counted = new Map();
    for (let j = 0; j < all; j++) {
      const codes = contexts.slice(j * L, (j + 1) * L);
      counted.set(String(codes), j);
      if (j >= m) continue;
      for (const { span } of raw.spans) {
        const row = features.get(key(codes, span));
        if (row !== undefined) for (let k = 0; k < d; k++) H[j * d + k] += A[row * d + k];
      }
    }
    const held = numbers(raw.held_out),
      out = new Set();
    for (let j = 0; j < raw.held_out.shape[0]; j++) out.add(String(held.slice(j * L, (j + 1) * L)));
    const codeOf = new Map(raw.names.map((name, k) => [name, k + 2]));
    return { L, m, d, W, A, H, weights, key, features, counted, out, codeOf, others: raw.others && new Set(raw.others) };
  }
  let prepared = null;
  const box = () => (prepared ??= prepare());

  // ---- tokens ------------------------------------------------------------------------------------------------------
  function split(text) {
    if (raw.tokenizer === "word") return text.toLowerCase().match(WORDS) ?? [];
    if (raw.tokenizer === "whitespace" || raw.tokenizer === "token ids") return text.split(/\s+/).filter(Boolean);
    if (raw.tokenizer === "character") return [...text];
    return greedy(text);
  }

  // The longest known token at each place; of a text that begins with no known token, one character is unknown.
  function greedy(text) {
    const { codeOf } = box(),
      longest = Math.max(...raw.names.map((name) => name.length)),
      found = [];
    for (let at = 0; at < text.length; ) {
      let end = Math.min(at + longest, text.length);
      while (end > at && !codeOf.has(text.slice(at, end))) end -= 1;
      const token = end > at ? text.slice(at, end) : String.fromCodePoint(text.codePointAt(at));
      if (end > at || token.trim()) found.push(token);
      at += token.length;
    }
    return found;
  }

  // ---- what is said ------------------------------------------------------------------------------------------------
  const quoted = (text) => `“${exploreData.legible(text)}”`;

  function unknownSentence(token) {
    const { others } = box();
    if (others && !others.has(token)) return `${quoted(token)} is not in the text.`;
    return `${quoted(token)} is in none of the contexts of this section.`;
  }

  function sentences(tokens, codes, found) {
    const { counted, out } = box(),
      read = `Read as ${tokens.map(quoted).join(" ")}.`;
    const unknown = tokens.filter((_, k) => codes[codes.length - tokens.length + k] === UNKNOWN).map(unknownSentence);
    let where = "The text does not have this context.";
    if (counted.has(String(codes))) where = "This context was trained on.";
    else if (out.has(String(codes))) where = "The text has this context, but it was held out: the training does not know it.";
    else if (!raw.is_whole) where = "The text does not have this context, or it was cut away.";
    const nothing = found.length ? [] : ["None of its features is known here: nothing is predicted for it."];
    return [read, where, ...new Set(unknown), ...nothing].join(" ");
  }

  function featureName(tokens, [last, first]) {
    const { L } = box(),
      end = tokens.length - last,
      shown = tokens.slice(Math.max(end - (first - last + 1), 0), end).map((token) => exploreData.legible(token));
    if (last === 0 && first === L - 1) return `the context “${shown.join(" ")}” itself`;
    return `… ${shown.join(" ")}${last ? `, ${last} before the end` : ""}`;
  }

  // ---- the answer --------------------------------------------------------------------------------------------------
  const largest = (values) =>
    Array.from(values, (value, k) => [k, value])
      .filter(([, value]) => Number.isFinite(value))
      .sort((a, b) => b[1] - a[1] || a[0] - b[0]);
  const dot = (a, i, b, j, weights) => {
    const d = weights.length;
    let sum = 0;
    for (let k = 0; k < d; k++) sum += weights[k] * a[i * d + k] * b[j * d + k];
    return sum;
  };

  // The last norm divides by the root mean square, and multiplies by the gain, which W has already.
  function place(tokens, codes) {
    const { m, d, W, A, H, weights, key, features, counted } = box();
    const found = [],
      h = new Float64Array(d);
    for (const { span } of raw.spans) {
      const row = features.get(key(codes, span));
      if (row === undefined) continue;
      found.push([span, row]);
      for (let k = 0; k < d; k++) h[k] += A[row * d + k];
    }
    const size = dot(h, 0, h, 0, weights),
      plain = new Float64Array(d).fill(1 / Math.sqrt(dot(h, 0, h, 0, new Float64Array(d).fill(1)) / d + 1e-6));
    const shares = found.map(([span, row]) => [
      featureName(tokens, span),
      size > 0 ? dot(A, row, h, 0, weights) / size : 0,
    ]);
    const cosines = Array.from({ length: m }, (_, j) => {
      const length = Math.sqrt(dot(H, j, H, j, weights) * size);
      return length > 0 ? dot(H, j, h, 0, weights) / length : NaN;
    });
    const own = counted.get(String(codes)),
      near = largest(cosines)
        .filter(([j]) => j !== own)
        .slice(0, SHOWN);
    const logits = raw.vocabulary.map((_, z) => dot(W, z, h, 0, plain)),
      top = Math.max(...logits),
      odds = logits.map((x) => Math.exp(x - top)),
      total = odds.reduce((a, b) => a + b, 0);
    const next = largest(odds.map((x) => x / total)).slice(0, SHOWN);
    shares.sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
    return { found, shares, near, next };
  }

  const { make, fixed } = explorePanel;
  const percent = (share) => `${fixed(100 * share, 1)}%`;

  function table(name, heads, rows) {
    const head = heads.map((text, k) => make("th", { scope: "col", class: k ? "num" : null }, text));
    const body = rows.map(([text, value]) =>
      make("tr", {}, make("th", { scope: "row" }, make("bdi", {}, text)), make("td", { class: "num" }, value)),
    );
    return make(
      "div",
      { class: "scroll" },
      make(
        "table",
        { class: "short", "data-of": name },
        make("thead", {}, make("tr", {}, ...head)),
        make("tbody", {}, ...body),
      ),
    );
  }

  function show() {
    answer.replaceChildren();
    const { L, codeOf } = box(),
      tokens = split(query.value).slice(-L);
    if (!tokens.length) {
      said.textContent = "";
      return;
    }
    const codes = [...Array(L - tokens.length).fill(ABSENT), ...tokens.map((token) => codeOf.get(token) ?? UNKNOWN)];
    const { found, shares, near, next } = place(tokens, codes);
    said.textContent = sentences(tokens, codes, found);
    if (!found.length) return;
    const legible = exploreData.legible;
    answer.append(
      table("features", ["features that were found", "share"], shares.map(([name, share]) => [name, percent(share)])),
      table("near", ["nearest contexts", "cosine"], near.map(([j, cosine]) => [legible(raw.labels[j]), fixed(cosine, 3)])),
      table("next", ["most probable next tokens", "probability"], next.map(([z, p]) => [legible(raw.vocabulary[z]), percent(p)])),
    );
  }

  document.getElementById("unseen-app").hidden = false;
  query.addEventListener("input", show);
})();
