// Links of the section Explore: what is on show as the fragment of an address, and back.
const exploreLink = (() => {
  const { KINDS } = exploreData,
    { SINGULAR } = explorePanel;
  const START = "#explore",
    MODES = ["side", "overlay", "predicted", "measured"];
  const LIMITS = { dims: [2, 3], zoom: [0.5, 40], x: [-40, 40], y: [-40, 40], yaw: [-100, 100], pitch: [-1.6, 1.6] };
  const round = (x) => String(+x.toFixed(4));

  // Fragment that restores a state; what is as usual is left out.
  function fragment(data, state, usual) {
    const params = new URLSearchParams();
    const put = (key, value, plain) => {
      if (value !== plain) params.set(key, value);
    };
    if (state.selected) params.set(SINGULAR[state.selected.kind], data.name(state.selected.kind, state.selected.item));
    if (state.at !== null) params.set("at", round(state.at));
    for (const key of ["model", "mode", "heat", "concept", "frequent"]) put(key, state[key], usual[key]);
    const hidden = KINDS.filter((kind) => !state[kind] && usual[kind]);
    if (hidden.length) params.set("hide", hidden.join(" "));
    if (state.group >= 0) params.set("group", data.name("contexts", state.group));
    if (state.largest) params.set("list", "disagreements");
    for (const key of Object.keys(LIMITS)) put(key, round(state.view[key]), round(usual.view[key]));
    return params.size ? `${START}?${params}` : START;
  }

  function numberIn(params, key, low, high, usual) {
    const value = params.has(key) ? Number(params.get(key)) : NaN;
    return Number.isFinite(value) ? Math.min(Math.max(value, low), high) : usual;
  }

  // State that a fragment asks for, and a sentence for every name in it that is not on the page.
  function stateOf(data, hash, usual) {
    const params = new URLSearchParams(hash.slice(START.length + 1)),
      made = usual,
      missing = [],
      { raw } = data;
    for (const kind of KINDS) {
      if (!params.has(SINGULAR[kind])) continue;
      const name = params.get(SINGULAR[kind]),
        item = data.find(kind, name);
      if (item >= 0) made.selected = { kind, item };
      else
        missing.push(`The ${SINGULAR[kind]} “\u2068${name}\u2069” is not shown on this page. Search for another one.`);
    }
    if (raw.models.length) {
      made.model = Math.round(numberIn(params, "model", 0, raw.models.length - 1, 0));
      if (MODES.includes(params.get("mode"))) made.mode = params.get("mode");
      made.largest = params.get("list") === "disagreements";
    }
    made.at = numberIn(params, "at", 0, data.path.length - 1, null);
    if (KINDS.includes(params.get("heat"))) made.heat = params.get("heat");
    made.concept = Math.round(numberIn(params, "concept", -1, raw.concepts.length - 1, -1));
    made.frequent = Math.round(numberIn(params, "frequent", 0, 1e6, 0));
    for (const kind of (params.get("hide") ?? "").split(" ")) if (KINDS.includes(kind)) made[kind] = false;
    made.group = params.has("group") ? data.find("contexts", params.get("group")) : -1;
    for (const [key, [low, high]] of Object.entries(LIMITS))
      made.view[key] = numberIn(params, key, low, high, made.view[key]);
    made.view.dims = Math.round(made.view.dims);
    return { made, missing };
  }

  return { START, fragment, stateOf };
})();
