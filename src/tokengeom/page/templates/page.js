"use strict";
// Draws every plot from the data next to it (folded ones when they are unfolded), applies the light or dark theme, and
// saves pictures and data. Nothing is fetched.
(() => {
  const root = document.documentElement;
  const DARK = JSON.parse(document.getElementById("theme").textContent).dark;
  const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");
  const CONFIG = {
    displaylogo: false, responsive: true, typesetMath: false, plotlyServerURL: "", displayModeBar: "hover",
    modeBarButtons: [["zoom2d", "pan2d", "resetScale2d"]],
  };
  const plots = new Map();

  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : prefersDark.matches);

  // ---- data -------------------------------------------------------------------------------------------------------
  function unpacked(z) {
    const bytes = Uint8Array.from(atob(z.packed), (c) => c.charCodeAt(0));
    const numbers = new Int16Array(bytes.buffer);
    const [rows, columns] = z.shape;
    const value = (i, j) => {
      const index = z.symmetric ? (i >= j ? (i * (i + 1)) / 2 + j : (j * (j + 1)) / 2 + i) : i * columns + j;
      return numbers[index] < 0 ? null : z.low + numbers[index] * z.step;
    };
    return Array.from({ length: rows }, (_, i) => Array.from({ length: columns }, (_, j) => value(i, j)));
  }

  function read(element) {
    const plot = JSON.parse(element.textContent);
    for (const trace of plot.drawn.data) if (trace.z && trace.z.packed !== undefined) trace.z = unpacked(trace.z);
    return plot;
  }

  // ---- theme ------------------------------------------------------------------------------------------------------
  function themed(value, dark) {
    if (!dark) return value;
    if (typeof value === "string") return DARK[value] || value;
    if (Array.isArray(value)) {
      return value.length && typeof value[0] === "number" && value.length > 2 ? value : value.map((v) => themed(v, dark));
    }
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, v]) => [key, key === "z" ? v : themed(v, dark)]));
    }
    return value;
  }

  function drawing(plot, dark) {
    const copy = structuredClone(plot.drawn.layout);
    return { data: themed(plot.drawn.data, dark), layout: themed(copy, dark) };
  }

  // A folded element has no size, so a plot in it is drawn when it is unfolded.
  const isFolded = (element) => element.closest("details.fold:not([open])") !== null;

  function draw(id) {
    const one = plots.get(id);
    const { data, layout } = drawing(one.plot, isDark());
    one.isDrawn = true;
    return Plotly.react(one.element, data, layout, CONFIG);
  }

  function redrawAll() {
    for (const [id, one] of plots) {
      one.isDrawn = false;
      if (!isFolded(one.element)) draw(id);
    }
  }

  function drawUnfolded(fold) {
    for (const [id, one] of plots) {
      if (!fold.contains(one.element) || isFolded(one.element)) continue;
      if (one.isDrawn) Plotly.Plots.resize(one.element);
      else draw(id);
    }
  }

  document.addEventListener("toggle", (event) => {
    if (event.target.matches("details.fold[open]")) drawUnfolded(event.target);
  }, true);

  document.getElementById("theme-switch").addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    redrawAll();
  });
  prefersDark.addEventListener("change", () => { if (!root.dataset.theme) redrawAll(); });

  // ---- saving -----------------------------------------------------------------------------------------------------
  const plain = (text) => String(text ?? "").replace(/<\/?su[bp]>/g, "").replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&amp;", "&");
  const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  const cell = (v) =>
    csvCell(v === null || v === undefined ? "" : typeof v === "number" ? String(+v.toPrecision(7)) : plain(v));

  function table(plot) {
    const { data, layout } = plot.drawn;
    const heat = data.find((trace) => trace.type === "heatmap");
    if (heat) {
      const across = layout.xaxis.ticktext, down = layout.yaxis.ticktext;
      return [["", ...across], ...heat.z.map((row, i) => [down[i], ...row])];
    }
    const rows = [["name", "text", "x", "y"]];
    for (const trace of data) {
      if (trace.hoverinfo === "skip") continue;
      trace.x.forEach((x, i) => rows.push([trace.name, trace.text ? trace.text[i] : "", x, trace.y[i]]));
    }
    return rows;
  }

  function download(name, url) {
    const link = document.createElement("a");
    link.href = url;
    link.download = name;
    link.click();
    if (url.startsWith("blob:")) setTimeout(() => URL.revokeObjectURL(url), 10000);
  }

  function blob(text, type) {
    return URL.createObjectURL(new Blob([text], { type }));
  }

  // A saved picture is light and has its title and colour scale; on paper the page prints the title above the picture.
  async function image(id, format, { width, height, scale = 1, title = false }) {
    const { plot } = plots.get(id);
    const { data, layout } = drawing(plot, false);
    const printed = { ...layout, paper_bgcolor: "#FFFFFF", plot_bgcolor: "#FFFFFF" };
    if (title) {
      printed.title = { text: `${escaped(plot.figure)}: ${escaped(plot.title)}`, x: 0.02, font: { size: 14 } };
      printed.margin = { ...layout.margin, t: 44 };
    }
    const shown = title ? data.map((t) => (t.type === "heatmap" ? { ...t, showscale: true } : t)) : data;
    return Plotly.toImage({ data: shown, layout: printed, config: CONFIG }, { format, width, height, scale });
  }

  function pictureSize(id, format) {
    const { element } = plots.get(id);
    const width = Math.max(element.clientWidth, 520), height = Math.max(element.clientHeight, 420);
    return { width, height, scale: format === "png" ? 3 : 1, title: true };
  }

  async function save(id, format) {
    const { plot } = plots.get(id);
    if (format === "csv") {
      download(`${id}.csv`, blob(table(plot).map((row) => row.map(cell).join(",")).join("\r\n"), "text/csv"));
    } else if (format === "json") {
      const saved = { title: `${plot.figure}: ${plot.title}`, table: table(plot).map((row) => row.map((v) => typeof v === "string" ? plain(v) : v)) };
      download(`${id}.json`, blob(JSON.stringify(saved), "application/json"));
    } else {
      download(`${id}.${format}`, await image(id, format, pictureSize(id, format)));
    }
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-save]");
    const menu = event.target.closest("details.save");
    for (const open of document.querySelectorAll("details.save[open]")) if (open !== menu) open.open = false;
    if (!button) return;
    button.closest("details").open = false;
    save(button.dataset.plot, button.dataset.save);
  });

  // ---- print ------------------------------------------------------------------------------------------------------
  let folded = [];
  window.addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details.fold:not([open])")];
    for (const one of folded) one.open = true;
    for (const [id, one] of plots) if (!one.isDrawn && !one.hasStill) draw(id);
  });
  window.addEventListener("afterprint", () => { for (const one of folded) one.open = false; });

  async function addStill(id) {
    const one = plots.get(id), { element } = one;
    const picture = document.createElement("img");
    picture.className = "still";
    picture.alt = element.parentElement.getAttribute("aria-label");
    const columns = Number(getComputedStyle(element).getPropertyValue("--columns")) || 1;
    const width = { 1: 620, 2: 420, 3: 340 }[columns] || 300;
    const height = element.classList.contains("square") ? 0.94 * width : parseFloat(element.style.height);
    picture.src = await image(id, "svg", { width, height });
    element.closest(".box").append(picture);
    element.closest(".box").classList.add("has-still");
    one.hasStill = true;
  }

  // ---- start ------------------------------------------------------------------------------------------------------
  const pause = () => new Promise((resolve) => setTimeout(resolve, 0));

  async function start() {
    for (const element of document.querySelectorAll("script[data-for]")) {
      const id = element.dataset.for;
      plots.set(id, { element: document.getElementById(id), plot: read(element) });
    }
    for (const [id, one] of plots) {
      if (isFolded(one.element) || one.isDrawn) continue;
      await draw(id);
      await pause();
    }
    root.dataset.plots = "drawn";
    for (const id of plots.keys()) { await addStill(id); await pause(); }
    root.dataset.stills = "ready";
  }

  const contents = document.querySelector(".toc details");
  if (window.matchMedia("(max-width: 1099px)").matches) contents.open = false;
  const links = new Map([...document.querySelectorAll(".toc a")].map((a) => [a.hash.slice(1), a]));
  const observer = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      for (const link of links.values()) link.classList.remove("here");
      links.get(entry.target.id).classList.add("here");
    }
  }, { rootMargin: "-15% 0px -75% 0px" });
  for (const section of document.querySelectorAll("main > section")) observer.observe(section);
  start();
})();
