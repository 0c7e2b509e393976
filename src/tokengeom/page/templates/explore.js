// The section Explore: state, controls, search, slider, and the link to the present view. Nothing is fetched.
(() => {
  const app = document.getElementById("explore-app");
  if (!app) return;
  const { KINDS } = exploreData,
    { make, fixed, nats, counted, whole, SINGULAR } = explorePanel;
  const get = (id) => document.getElementById(`explore-${id}`);
  const data = exploreData.read(JSON.parse(get("data").textContent)),
    { raw } = data,
    last = data.path.length - 1;
  const root = document.documentElement,
    dark = window.matchMedia("(prefers-color-scheme: dark)");
  const calm = window.matchMedia("(prefers-reduced-motion: reduce)"),
    paper = window.matchMedia("print");
  const DURATION = 6000,
    FREQUENCIES = [20, 50, 200, 1000],
    LABELLED = 6,
    { START } = exploreLink;
  app.hidden = false;
  const map = exploreMap.create(get("map"), data),
    panel = explorePanel.create(data);

  // ---- state -------------------------------------------------------------------------------------------------------
  const { plainView } = exploreMap;
  const defaults = () => ({
    selected: null,
    hovered: null,
    model: raw.models.length ? 0 : -1,
    at: null,
    mode: raw.models.length ? "side" : "predicted",
    view: plainView(),
    tokens: data.count("tokens") > 0,
    contexts: data.count("contexts") > 0,
    frequent: 0,
    concept: -1,
    group: -1,
    heat: data.raw.heat?.tokens?.length ? "tokens" : "contexts",
    largest: false,
  });
  let state = defaults(),
    playing = null,
    paint = null,
    written = null,
    visible = null,
    cache = {};

  const model = () => raw.models[state.model] ?? null;
  const judgedPosition = () => (model() ? data.path.indexOf(model().predicted) : -1);
  // Where the slider stands; until it is moved, at the prediction that the model is compared with.
  function position() {
    if (state.at !== null) return state.at;
    if (!model()) return last;
    return judgedPosition() >= 0 ? judgedPosition() : Math.min(Math.max(model().position ?? last, 0), last);
  }
  // The prediction on show: between two points of the path, or the judged one where it is not on the path.
  function shown() {
    if (state.at === null && model() && judgedPosition() < 0)
      return { a: model().predicted, b: model().predicted, t: 0 };
    return data.between(position());
  }
  const nearestSource = () => {
    const { a, b, t } = shown();
    return t < 0.5 ? a : b;
  };

  function gapText(gap) {
    return gap === null || gap === undefined ? null : gap === 0 ? "limit" : nats(gap);
  }
  function shownText() {
    const { a, b, t } = shown();
    if (t === 0) return raw.sources[a].label;
    const gap = data.gapAt(position());
    return gap !== null
      ? `predicted at a loss gap of ${nats(gap)}, between two computed points`
      : `predicted between a loss gap of ${gapText(raw.sources[a].gap) ?? "unknown size"} and the limit`;
  }
  function now() {
    const source = nearestSource(),
      exact = shown().t === 0;
    return {
      model: model(),
      source,
      place: `${raw.sources[source].label}${exact ? "" : " (the nearest computed point)"}`,
    };
  }

  // ---- what is visible ---------------------------------------------------------------------------------------------
  function refilter() {
    const group = state.group >= 0 ? data.groupOf(state.group) : null;
    visible = Object.fromEntries(
      KINDS.map((kind) => {
        const ranks = data.shareRanks(kind),
          most = state.frequent || Infinity;
        return [
          kind,
          Uint8Array.from({ length: data.count(kind) }, (_, i) =>
            state[kind] && ranks[i] < most && (group === null || kind === "tokens" || data.groupOf(i) === group)
              ? 1
              : 0,
          ),
        ];
      }),
    );
    if (state.selected) visible[state.selected.kind][state.selected.item] = 1;
  }
  function sides() {
    const concept = raw.concepts[state.concept];
    if (!concept) return null;
    return Object.fromEntries(
      KINDS.map((kind) => {
        const found = new Uint8Array(data.count(kind));
        (concept[kind] ?? []).forEach((items, side) =>
          items.forEach((i) => {
            found[i] = side + 1;
          }),
        );
        return [kind, found];
      }),
    );
  }

  // ---- drawing -----------------------------------------------------------------------------------------------------
  function measuredPlaces() {
    const { source } = model();
    if (cache.source !== source) cache = { source, places: placesOf({ a: source, b: source, t: 0 }) };
    return cache.places;
  }
  const placesOf = (spot) => Object.fromEntries(KINDS.map((kind) => [kind, exploreMap.places(data, kind, spot)]));
  function scene() {
    const { selected, mode } = state,
      two = mode === "side" || mode === "overlay",
      chosen = now();
    const layers = [];
    if (mode !== "measured") layers.push({ side: "predicted", title: shownText(), places: placesOf(shown()) });
    if (mode === "measured" || (two && model()))
      layers.push({ side: "measured", title: `measured: ${model().label}`, places: measuredPlaces() });
    const near = (side, source) =>
      selected && source !== undefined
        ? data
            .neighbours(source, selected.kind, selected.item)
            .slice(0, LABELLED)
            .map((one) => one.item)
        : [];
    const width = get("map").clientWidth;
    return {
      layers,
      overlay: mode === "overlay" && layers.length === 2,
      title: `predicted (filled) and ${model()?.label} (hollow)`,
      visible,
      sides: sides(),
      selected,
      hovered: state.hovered,
      near: { predicted: near("predicted", chosen.source), measured: near("measured", model()?.source) },
      disagreeing: Object.fromEntries(KINDS.map((kind) => [kind, model() ? data.mostWrong(model(), kind) : []])),
      view: { ...state.view, x: state.view.x * width, y: state.view.y * width },
      paint,
    };
  }
  function drawMap() {
    get("map").classList.toggle("two", state.mode === "side" && model() !== null);
    map.draw(scene());
    app.dataset.drawn = "yes";
  }
  function drawHeats() {
    const order = raw.heat?.[state.heat] ?? [],
      marked = state.selected?.kind === state.heat ? order.indexOf(state.selected.item) : -1;
    const own = model() && { a: model().source, b: model().source, t: 0 };
    for (const [side, spot, title] of [
      ["predicted", shown(), shownText()],
      ["measured", own, `measured: ${model()?.label}`],
    ]) {
      const values = spot && order.length ? exploreMap.cells(data, state.heat, spot) : null,
        canvas = get(`heat-${side}`);
      canvas.parentElement.hidden = !values;
      if (!values) continue;
      get(`heat-${side}-title`).textContent = title;
      canvas.setAttribute(
        "aria-label",
        `Heat-map of the cosines between ${counted(order.length, SINGULAR[state.heat])}, ${title}. ` +
          "The panel lists the cosines of the selected item.",
      );
      exploreMap.drawHeat(canvas, values, marked, paint);
    }
  }
  function repaint() {
    paint = exploreMap.colours(app);
    drawMap();
    drawHeats();
  }
  const themes = new MutationObserver(repaint);
  // Before printing, the page still has the colours of the screen: the light theme is set for a moment to read its own.
  function paintLight() {
    const theme = root.dataset.theme;
    root.dataset.theme = "light";
    repaint();
    if (theme) root.dataset.theme = theme;
    else delete root.dataset.theme;
    themes.takeRecords();
  }

  // ---- panel and controls ------------------------------------------------------------------------------------------
  function fillPanel() {
    const { selected } = state,
      chosen = now();
    const parts =
      state.largest && model()
        ? panel.largest(chosen)
        : selected
          ? panel.item(selected.kind, selected.item, chosen)
          : panel.empty(chosen);
    get("panel").replaceChildren(...parts);
  }
  function fillReached() {
    const { a, t } = shown(),
      gap = data.gapAt(position()),
      off = state.at === null && model() && judgedPosition() < 0;
    const point = `point ${whole(Math.round(position()) + 1)} of ${whole(last + 1)}`;
    const text = off
      ? `Shown: ${raw.sources[a].label}. It is not on the path; moving the slider shows the path.`
      : t === 0
        ? `Shown: ${raw.sources[a].label} (${point}, exact)`
        : `Shown: ${shownText()}; neighbours are those of ${point}`;
    get("reached").textContent = text;
    get("at").value = position();
    get("at").setAttribute(
      "aria-valuetext",
      off ? raw.sources[a].label : gap === null ? shownText() : gap === 0 ? "the limit" : `loss gap ${nats(gap)}`,
    );
  }
  function fillControls() {
    for (const radio of app.querySelectorAll("[name=explore-mode]")) radio.checked = radio.value === state.mode;
    for (const radio of app.querySelectorAll("[name=explore-heat]")) radio.checked = radio.value === state.heat;
    for (const kind of KINDS) get(kind).checked = state[kind];
    get("model").value = state.model;
    get("concept").value = state.concept;
    get("frequent").value = state.frequent;
    app.querySelector("[data-do=turn]").setAttribute("aria-pressed", state.view.dims === 3);
    app.querySelector("[data-do=turn]").textContent = state.view.dims === 3 ? "2-D" : "3-D";
    app.querySelector("[data-do=largest]").setAttribute("aria-pressed", state.largest);
    fillGroup();
    fillLegend();
  }
  function fillGroup() {
    const context = state.group >= 0 ? state.group : state.selected?.kind === "contexts" ? state.selected.item : -1;
    const many = context >= 0 ? data.sameSupport(context).length : 0;
    app.querySelector("[data-part=group]").hidden = many < 2;
    get("group").checked = state.group >= 0;
    if (many > 1)
      get("group-label").replaceChildren(
        `only the ${counted(many, "context")} with the same support as `,
        make("bdi", {}, data.shown("contexts", context, 30)),
      );
  }
  function fillLegend() {
    const entry = (mark, text) =>
      make("span", {}, make("i", { class: `explore-mark ${mark}`, "aria-hidden": "true" }), ` ${text}`);
    const concept = raw.concepts[state.concept],
      parts = [];
    if (state.mode === "side" || state.mode === "overlay")
      parts.push(entry("filled", "filled: predicted"), entry("hollow", "hollow: measured"));
    if (concept)
      parts.push(entry("first", "one side of the concept"), entry("second", "the other side, with a dark outline"));
    parts.push(make("span", {}, "circle: token"), make("span", {}, "square: context"));
    if (state.mode === "overlay") parts.push(make("span", {}, "line: from the predicted to the measured place"));
    if (state.view.dims === 3) parts.push(make("span", {}, "larger: nearer"));
    get("legend").replaceChildren(...parts);
    get("map").setAttribute("aria-label", mapLabel());
  }
  function mapLabel() {
    const [tokens, contexts] = KINDS.map((kind) =>
      counted(
        visible[kind].reduce((sum, one) => sum + one, 0),
        SINGULAR[kind],
      ),
    );
    const axes = state.view.dims === 3 ? "three axes" : "axes 1 and 2";
    const measured = model() && state.mode !== "predicted" ? `, with the measurement of ${model().label}` : "";
    const shownHere = `Map of ${tokens} and ${contexts}, ${axes}, ${shownText()}${measured}`;
    return `${shownHere}. Use the search box to select by name.`;
  }

  // ---- changes -----------------------------------------------------------------------------------------------------
  function timed(name, work) {
    const start = performance.now();
    work();
    app.dataset[name] = (performance.now() - start).toFixed(1);
  }
  function update(change = {}) {
    timed("answerMs", () => {
      Object.assign(state, change);
      refilter();
      fillControls();
      fillReached();
      fillPanel();
      drawMap();
      drawHeats();
    });
    writeLink();
  }
  function select(kind, item, announce = true) {
    get("message").textContent = "";
    update({ selected: { kind, item }, largest: false, heat: raw.heat?.[kind]?.length ? kind : state.heat });
    get("panel").scrollTop = 0;
    if (announce) get("live").textContent = panel.spoken(kind, item, now());
  }
  function slide(at) {
    const before = nearestSource(),
      exact = shown().t === 0;
    timed("drawMs", () => {
      state.at = Math.min(Math.max(at, 0), last);
      fillReached();
      if (nearestSource() !== before || (shown().t === 0) !== exact) fillPanel();
      drawMap();
      drawHeats();
    });
    writeLink();
  }
  function clear() {
    update({ selected: null, largest: false });
    get("live").textContent = "Nothing is selected.";
  }

  // ---- search ------------------------------------------------------------------------------------------------------
  const search = exploreSearch.create(data, get("query"), get("results"), {
    choose: select,
    report: (text) => {
      const none = text !== null;
      get("live").textContent = none ? "Nothing found." : "";
      get("message").textContent = none ? `Nothing shown here is called “\u2068${text.slice(0, 60)}${text.length > 60 ? "…" : ""}\u2069”. ${raw.summary}` : "";
    },
  });

  // ---- pointer and keys on the map ---------------------------------------------------------------------------------
  const canvas = get("map"),
    fingers = new Map();
  let moved = false;
  const spotOf = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  function changeView(change) {
    state.view = { ...state.view, ...change };
    state.view.pitch = Math.min(Math.max(state.view.pitch, -Math.PI / 2), Math.PI / 2);
    drawMap();
    writeLink();
  }
  function zoom(factor, at = null) {
    const { view } = state,
      to = Math.min(Math.max(view.zoom * factor, 0.5), 40),
      ratio = to / view.zoom,
      width = canvas.clientWidth;
    const pane = at && map.paneAt(...at),
      px = pane ? (at[0] - pane.x - pane.w / 2) / width : 0,
      py = pane ? (at[1] - pane.y - pane.h / 2) / width : 0;
    changeView({ zoom: to, x: px + (view.x - px) * ratio, y: py + (view.y - py) * ratio });
  }
  function drag(dx, dy) {
    const { view } = state,
      width = canvas.clientWidth;
    if (view.dims === 3) changeView({ yaw: view.yaw + dx / 120, pitch: view.pitch + dy / 120 });
    else changeView({ x: view.x + dx / width, y: view.y + dy / width });
  }
  function hover(event) {
    const at = map.hit(...spotOf(event), visible),
      before = state.hovered;
    if (at?.kind === before?.kind && at?.item === before?.item) return;
    state.hovered = at;
    drawMap();
  }
  function pinch(event) {
    const gap = () => {
      const [a, b] = [...fingers.values()];
      return Math.hypot(a[0] - b[0], a[1] - b[1]);
    };
    const before = gap();
    fingers.set(event.pointerId, spotOf(event));
    const [a, b] = [...fingers.values()];
    if (before > 0) zoom(gap() / before, [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2]);
  }
  canvas.addEventListener("pointerdown", (event) => {
    fingers.set(event.pointerId, spotOf(event));
    moved = fingers.size > 1;
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!fingers.has(event.pointerId)) return hover(event);
    if (fingers.size > 1) return pinch(event);
    const [x, y] = spotOf(event),
      [oldX, oldY] = fingers.get(event.pointerId);
    if (!moved && Math.hypot(x - oldX, y - oldY) < 5) return;
    moved = true;
    fingers.set(event.pointerId, [x, y]);
    drag(x - oldX, y - oldY);
  });
  canvas.addEventListener("pointerup", (event) => {
    fingers.delete(event.pointerId);
    if (moved) return;
    const at = map.hit(...spotOf(event), visible, event.pointerType === "touch" ? 24 : 14);
    if (at) select(at.kind, at.item);
  });
  canvas.addEventListener("pointercancel", (event) => fingers.delete(event.pointerId));
  canvas.addEventListener("pointerleave", () => {
    if (state.hovered) {
      state.hovered = null;
      drawMap();
    }
  });
  canvas.addEventListener(
    "wheel",
    (event) => {
      if (document.activeElement !== canvas && !event.ctrlKey) return;
      event.preventDefault();
      zoom(Math.exp(-event.deltaY / 400), spotOf(event));
    },
    { passive: false },
  );
  canvas.addEventListener("keydown", (event) => {
    const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] },
      arrow = arrows[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (arrow) drag(...arrow.map((one) => one * (state.view.dims === 3 ? 120 * exploreMap.TURN : -30)));
    else if (event.key === "+" || event.key === "=") zoom(1.25);
    else if (event.key === "-") zoom(0.8);
    else if (event.key === "0") changeView({ ...plainView(), dims: state.view.dims });
    else if (event.key === "Escape") clear();
    else return;
    event.preventDefault();
  });

  // ---- heat-maps ---------------------------------------------------------------------------------------------------
  function cellAt(event) {
    const box = event.currentTarget.getBoundingClientRect(),
      order = raw.heat[state.heat];
    const at = (offset, size) =>
      order[Math.min(Math.max(Math.floor((offset / size) * order.length), 0), order.length - 1)];
    return [at(event.clientY - box.top, box.height), at(event.clientX - box.left, box.width)];
  }
  function readCell(event, side) {
    const order = raw.heat[state.heat],
      pair = cellAt(event),
      own = model()?.source;
    const values = exploreMap.cells(data, state.heat, side === "predicted" ? shown() : { a: own, b: own, t: 0 });
    const cosine = values[order.indexOf(pair[0]) * order.length + order.indexOf(pair[1])];
    const names = pair.map((item) => make("bdi", {}, data.shown(state.heat, item, 40)));
    get("cell").replaceChildren(names[0], " and ", names[1], `: ${side} cosine ${fixed(cosine)}`);
  }
  for (const side of ["predicted", "measured"]) {
    get(`heat-${side}`).addEventListener("pointermove", (event) => readCell(event, side));
    get(`heat-${side}`).addEventListener("pointerleave", () => get("cell").replaceChildren());
    get(`heat-${side}`).addEventListener("click", (event) => select(state.heat, cellAt(event)[0]));
  }

  // ---- play --------------------------------------------------------------------------------------------------------
  const playButton = app.querySelector("[data-do=play]");
  function stop() {
    if (playing) {
      cancelAnimationFrame(playing.frame);
      clearTimeout(playing.timer);
    }
    playing = null;
    playButton.textContent = "Play";
    playButton.setAttribute("aria-pressed", "false");
  }
  function play() {
    const from = position() >= last ? 0 : position(),
      start = performance.now();
    slide(from);
    playing = {};
    playButton.textContent = "Pause";
    playButton.setAttribute("aria-pressed", "true");
    const glide = (time) => {
      const at = from + (Math.max(time - start, 0) / DURATION) * last;
      slide(at);
      if (at >= last) stop();
      else playing.frame = requestAnimationFrame(glide);
    };
    const leap = () => {
      slide(Math.min(Math.floor(position()) + 1, last));
      if (position() >= last) stop();
      else playing.timer = setTimeout(leap, Math.max(DURATION / last, 400));
    };
    if (calm.matches) playing.timer = setTimeout(leap, Math.max(DURATION / last, 400));
    else playing.frame = requestAnimationFrame(glide);
  }

  // ---- saving ------------------------------------------------------------------------------------------------------
  const number = (x) => (x === null || x === undefined || !Number.isFinite(x) ? "" : String(+x.toPrecision(7)));
  function selectedRows() {
    const { kind, item } = state.selected,
      lists = ["predicted", "measured"].map((side) => panel.nearest(kind, item, now(), side));
    const all = new Map([...lists[1], ...lists[0]].map((one) => [one.item, one])),
      rank = (k, other) => lists[k].findIndex((one) => one.item === other) + 1;
    const rows = [
      [
        "item",
        "kind",
        "neighbour",
        "rank in the prediction",
        "rank in the model",
        "predicted cosine",
        "measured cosine",
        "shared supports",
      ],
    ];
    for (const one of [...all.values()].sort(
      (a, b) => (rank(0, a.item) || 99) - (rank(0, b.item) || 99) || rank(1, a.item) - rank(1, b.item),
    )) {
      rows.push([
        data.name(kind, item),
        SINGULAR[kind],
        data.name(kind, one.item),
        String(rank(0, one.item) || ""),
        String(rank(1, one.item) || ""),
        number(one.predicted),
        number(one.measured),
        String(one.shared),
      ]);
    }
    return rows;
  }
  function visibleRows() {
    const axes = (word) => [1, 2, 3].map((k) => `${word} axis ${k}`),
      predicted = placesOf(shown()),
      measured = model() ? measuredPlaces() : null;
    const rows = [["item", "kind", "share", ...axes("predicted"), ...axes("measured"), "disagreement"]];
    for (const kind of KINDS)
      for (let i = 0; i < data.count(kind); i++) {
        if (!visible[kind][i]) continue;
        const spot = (all) => [0, 1, 2].map((k) => number(all?.[kind][3 * i + k]));
        rows.push([
          data.name(kind, i),
          SINGULAR[kind],
          number(data.share(kind, i)),
          ...spot(predicted),
          ...spot(measured),
          number(model() ? data.disagreement(model(), kind, i) : null),
        ]);
      }
    return rows;
  }
  // Every item with a disagreement, the largest first.
  function disagreementRows() {
    const items = KINDS.flatMap((kind) => data.mostWrong(model(), kind).map((i) => [kind, i]));
    return [
      ["kind", "name", "disagreement", "share"],
      ...items.map(([kind, i]) => [
        SINGULAR[kind],
        data.name(kind, i),
        number(data.disagreement(model(), kind, i)),
        number(data.share(kind, i)),
      ]),
    ];
  }
  function saveCsv() {
    const [rows, name] = state.largest
        ? [disagreementRows(), "explore-disagreements.csv"]
        : state.selected
          ? [selectedRows(), "explore-neighbours.csv"]
          : [visibleRows(), "explore-places.csv"],
      link = document.createElement("a");
    link.href = URL.createObjectURL(
      new Blob([rows.map((row) => row.map(csvCell).join(",")).join("\r\n")], { type: "text/csv" }),
    );
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  // ---- link to the present view ------------------------------------------------------------------------------------
  let later = 0,
    address = location.hash;
  // The address is written late, since browsers limit how often; a reader who has gone elsewhere by then stays there.
  function writeLink() {
    // While it plays, the slider moves without the reader: the address at the start counts.
    if (!playing) address = location.hash;
    clearTimeout(later);
    later = setTimeout(() => {
      written = exploreLink.fragment(data, state, defaults());
      get("link").setAttribute("href", written);
      if (location.hash !== address) return;
      if (location.hash !== written && (written !== START || location.hash.startsWith(START)))
        history.replaceState(history.state, "", written);
      address = location.hash;
    }, 200);
  }
  function readLink(hash) {
    if (!hash.startsWith(`${START}?`) || hash === written) return false;
    const { made, missing } = exploreLink.stateOf(data, hash, defaults());
    stop();
    update(made);
    get("message").textContent = missing.join(" ");
    if (made.selected) get("live").textContent = panel.spoken(made.selected.kind, made.selected.item, now());
    app.parentElement.scrollIntoView();
    return true;
  }

  // ---- controls ----------------------------------------------------------------------------------------------------
  const actions = {
    largest: () => update({ largest: !state.largest }),
    csv: saveCsv,
    reset: () => {
      stop();
      search.clear();
      get("message").textContent = "";
      update(defaults());
    },
    turn: () => update({ view: { ...state.view, dims: state.view.dims === 3 ? 2 : 3 } }),
    closer: () => zoom(1.4),
    farther: () => zoom(1 / 1.4),
    recentre: () => changeView({ ...plainView(), dims: state.view.dims }),
    play: () => (playing ? stop() : play()),
  };
  app.addEventListener("click", (event) => {
    const name = event.target.closest("[data-item]"),
      action = event.target.closest("[data-do]"),
      stand = event.target.closest("[data-stand]");
    if (name) {
      select(name.dataset.kind, Number(name.dataset.item));
      get("panel").focus({ preventScroll: true });
    }
    if (action) actions[action.dataset.do]();
    if (stand) {
      stop();
      update({ model: Number(stand.dataset.stand), at: null });
    }
  });
  function listen() {
    get("at").addEventListener("input", () => {
      stop();
      slide(Number(get("at").value));
    });
    // Arrow keys go from one computed point to the next; with Shift they move a tenth of the way.
    get("at").addEventListener("keydown", (event) => {
      const way = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[event.key];
      if (!way) return;
      event.preventDefault();
      stop();
      const here = position(),
        next = event.shiftKey ? here + way / 10 : way > 0 ? Math.floor(here + 1.001) : Math.ceil(here - 1.001);
      slide(Math.min(Math.max(next, 0), last));
    });
    get("model").addEventListener("change", () => {
      stop();
      update({ model: Number(get("model").value), at: null });
    });
    get("concept").addEventListener("change", () => update({ concept: Number(get("concept").value) }));
    get("frequent").addEventListener("change", () => update({ frequent: Number(get("frequent").value) }));
    get("group").addEventListener("change", () => update({ group: get("group").checked ? state.selected.item : -1 }));
    for (const kind of KINDS) get(kind).addEventListener("change", () => update({ [kind]: get(kind).checked }));
    for (const radio of app.querySelectorAll("[name=explore-mode]"))
      radio.addEventListener("change", () => update({ mode: radio.value }));
    for (const radio of app.querySelectorAll("[name=explore-heat]"))
      radio.addEventListener("change", () => update({ heat: radio.value }));
    // The address may have been rewritten since the link was followed: the event has the one that was meant.
    window.addEventListener("hashchange", (event) => readLink(new URL(event.newURL).hash));
    new ResizeObserver(() => {
      layStands();
      drawMap();
      drawHeats();
    }).observe(app);
    themes.observe(root, { attributes: true, attributeFilter: ["data-theme"] });
    dark.addEventListener("change", repaint);
    paper.addEventListener("change", repaint);
    window.addEventListener("beforeprint", paintLight);
    window.addEventListener("afterprint", repaint);
  }

  const layStands = () => exploreSlider.layStands(data, get("stands"), get("at").clientWidth || 300);

  // ---- start -------------------------------------------------------------------------------------------------------
  const part = (name, present) => {
    app.querySelector(`[data-part=${name}]`).hidden = !present;
  };
  function options(select, entries) {
    select.replaceChildren(...entries.map(([value, text]) => make("option", { value }, text)));
  }
  function prepare() {
    get("summary").textContent = raw.summary ?? "";
    get("rotation").textContent = raw.rotation ?? "";
    options(
      get("model"),
      raw.models.map((one, k) => [k, one.gap === null ? one.label : `${one.label} (loss gap ${nats(one.gap)})`]),
    );
    options(get("concept"), [[-1, "none"], ...raw.concepts.map((one, k) => [k, one.label])]);
    const most = Math.max(data.count("tokens"), data.count("contexts"));
    options(get("frequent"), [
      [0, "all"],
      ...FREQUENCIES.filter((n) => n < most).map((n) => [n, `${whole(n)} most frequent`]),
    ]);
    part("model", raw.models.length > 1);
    part("mode", raw.models.length > 0);
    part("concept", raw.concepts.length > 0);
    part("frequent", most > FREQUENCIES[0]);
    part("slider", last > 0);
    part(
      "heat",
      KINDS.some((kind) => raw.heat?.[kind]?.length),
    );
    app.querySelector("[data-do=largest]").hidden = !raw.models.length;
    get("alone").hidden = last > 0;
    const only = `Shown: ${raw.sources[data.path[0]].label}.`;
    get("alone").textContent = raw.path?.length
      ? `One prediction was computed, so there is no slider for the loss. ${only}`
      : `No prediction is on this page. ${only}`;
    get("at").max = last;
    exploreSlider.layTicks(data, get("ticks"));
    layStands();
  }

  prepare();
  paint = exploreMap.colours(app);
  if (!readLink(location.hash)) update();
  listen();
  window.tokengeomExplore = Object.freeze({
    state: () =>
      structuredClone({ ...state, position: position(), source: nearestSource(), playing: playing !== null }),
    spot: (kind, item, layer = 0) => map.spot(kind, item, layer),
    place: (kind, item) => [...placesOf(shown())[kind].subarray(3 * item, 3 * item + 3)],
    cells: (kind) => [...(exploreMap.cells(data, kind, shown()) ?? [])],
  });
})();
