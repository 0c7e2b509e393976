// The search box of the section Explore: a combobox with a list of tokens and contexts.
const exploreSearch = (() => {
  const { make, SINGULAR } = explorePanel;

  // choose(kind, item) is called with a result, report(text) with a text that nothing matches, or with null.
  function create(data, query, results, { choose, report }) {
    let found = [],
      active = -1;

    function close() {
      results.hidden = true;
      active = -1;
      query.setAttribute("aria-expanded", "false");
      query.removeAttribute("aria-activedescendant");
    }

    function option({ kind, item }, k) {
      const attributes = { role: "option", id: `explore-result-${k}`, "aria-selected": "false", "data-result": k };
      return make(
        "li",
        attributes,
        make("bdi", {}, data.shown(kind, item, 70)),
        make("span", { class: "quiet" }, SINGULAR[kind]),
      );
    }

    function open() {
      close();
      found = data.search(query.value);
      results.replaceChildren(...found.map(option));
      results.hidden = !found.length;
      query.setAttribute("aria-expanded", String(found.length > 0));
      report(found.length ? null : query.value);
    }

    function activate(k) {
      active = (k + found.length) % found.length;
      [...results.children].forEach((one, i) => one.setAttribute("aria-selected", String(i === active)));
      query.setAttribute("aria-activedescendant", `explore-result-${active}`);
      results.children[active].scrollIntoView({ block: "nearest" });
    }

    function take(k) {
      const { kind, item } = found[k];
      close();
      query.value = data.name(kind, item);
      choose(kind, item);
    }

    function press(event) {
      if (event.isComposing) return;
      const { key } = event;
      if (key === "ArrowDown" || key === "ArrowUp") {
        if (results.hidden) open();
        const next = active < 0 && key === "ArrowUp" ? found.length - 1 : active + (key === "ArrowDown" ? 1 : -1);
        if (found.length) activate(next);
      } else if (key === "Enter") {
        if (results.hidden) open();
        if (found.length && (query.value || active >= 0)) take(Math.max(active, 0));
      } else if (key === "Escape") {
        if (results.hidden) query.value = "";
        close();
      } else {
        return;
      }
      event.preventDefault();
    }

    function clear() {
      query.value = "";
      close();
      report(null);
    }

    query.addEventListener("input", () => (query.value ? open() : clear()));
    query.addEventListener("keydown", press);
    query.addEventListener("blur", close);
    results.addEventListener("mousedown", (event) => event.preventDefault());
    results.addEventListener("click", (event) => {
      const one = event.target.closest("[data-result]");
      if (one) take(Number(one.dataset.result));
    });
    return { clear };
  }

  return { create };
})();
