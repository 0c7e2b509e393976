// The map and the heat-maps of the section Explore, drawn on canvases.
const exploreMap = (() => {
  const { KINDS, numbers, step } = exploreData;
  const DEPTHS = 5,
    REACH = 14,
    TURN = Math.PI / 24;
  const FEW = 60,
    MANY_LINES = 30,
    FREQUENT = 40;

  // ---- colours -----------------------------------------------------------------------------------------------------
  function colours(element) {
    const style = getComputedStyle(element),
      read = (name) => style.getPropertyValue(`--${name}`).trim();
    const named = Object.fromEntries(
      ["ink", "quiet", "line", "card", "first", "second"].map((name) => [name, read(name)]),
    );
    const scale = read("diverging")
      .split(",")
      .map((hex) => [1, 3, 5].map((k) => parseInt(hex.trim().slice(k, k + 2), 16)));
    return { ...named, tokens: read("accent"), contexts: read("misfit"), scale, font: style.fontFamily };
  }

  const plainView = () => ({ dims: 2, zoom: 1, x: 0, y: 0, yaw: 0.6, pitch: 0.35 });

  // ---- geometry ----------------------------------------------------------------------------------------------------
  // Numbers between those of two packed arrays: exactly those of the first at 0.
  function between(one, other, t) {
    const x = numbers(one),
      y = numbers(other),
      found = new Float32Array(x.length),
      p = (1 - t) * step(one),
      q = t * step(other);
    for (let i = 0; i < x.length; i++) found[i] = t === 0 ? x[i] * p : x[i] * p + y[i] * q;
    return found;
  }

  // Places of all items between two sources.
  const places = (data, kind, { a, b, t }) =>
    between(data.raw.sources[a][kind].places, data.raw.sources[b][kind].places, t);

  function extent(data) {
    let most = 0;
    for (const source of [...data.path, ...data.raw.models.flatMap((m) => [m.source, m.predicted])]) {
      for (const kind of KINDS) {
        const all = places(data, kind, { a: source, b: source, t: 0 });
        for (let i = 0; i < all.length; i += 3) most = Math.max(most, all[i] ** 2 + all[i + 1] ** 2 + all[i + 2] ** 2);
      }
    }
    return Math.sqrt(most) || 1;
  }

  // Screen positions of a layer: x, y and depth (1 nearest, -1 farthest) per item.
  function project(layer, kind, view, reach) {
    const all = layer.places[kind],
      found = new Float32Array(all.length),
      { x, y, w, h } = layer.pane;
    const scale = (0.46 * Math.min(w, h) * view.zoom) / reach,
      cx = x + w / 2 + view.x,
      cy = y + h / 2 + view.y;
    const [cosYaw, sinYaw, cosPitch, sinPitch] = [
      Math.cos(view.yaw),
      Math.sin(view.yaw),
      Math.cos(view.pitch),
      Math.sin(view.pitch),
    ];
    for (let i = 0; i < all.length; i += 3) {
      let px = all[i],
        py = all[i + 1],
        pz = 0;
      if (view.dims === 3) {
        const back = all[i + 2] * cosYaw - px * sinYaw;
        px = px * cosYaw + all[i + 2] * sinYaw;
        pz = py * sinPitch + back * cosPitch;
        py = py * cosPitch - back * sinPitch;
      }
      found[i] = cx + px * scale;
      found[i + 1] = cy - py * scale;
      found[i + 2] = pz / reach;
    }
    return found;
  }

  const inside = ({ x, y, w, h }, px, py) => px >= x && px <= x + w && py >= y && py <= y + h;

  // ---- marks -------------------------------------------------------------------------------------------------------
  // Circles are tokens, squares are contexts; filled marks are predicted, hollow ones are measured.
  function tracePath(ctx, kind, x, y, r) {
    if (kind === "tokens") {
      ctx.moveTo(x + r, y);
      ctx.arc(x, y, r, 0, 2 * Math.PI);
    } else {
      ctx.rect(x - 0.88 * r, y - 0.88 * r, 1.76 * r, 1.76 * r);
    }
  }

  // Items of a layer, batched by look (ordinary, faint, two sides of a concept) and by depth.
  function batches(layer, kind, scene) {
    const found = new Map(),
      spots = layer.spots[kind],
      seen = scene.visible[kind],
      sides = scene.sides?.[kind];
    for (let i = 0; i < seen.length; i++) {
      if (!seen[i] || !inside(layer.pane, spots[3 * i], spots[3 * i + 1])) continue;
      const look = sides ? sides[i] || 3 : scene.selected ? 3 : 0;
      const depth = scene.view.dims === 3 ? Math.round(((spots[3 * i + 2] + 1) / 2) * (DEPTHS - 1)) : DEPTHS - 2;
      const key = depth * 4 + look;
      if (!found.has(key)) found.set(key, []);
      found.get(key).push(i);
    }
    return [...found].sort(([a], [b]) => a - b);
  }

  function drawMarks(ctx, layer, kind, scene, radius) {
    const { paint } = scene,
      spots = layer.spots[kind],
      deep = scene.view.dims === 3,
      filled = layer.side === "predicted";
    for (const [key, items] of batches(layer, kind, scene)) {
      const look = key % 4,
        near = Math.floor(key / 4) / (DEPTHS - 1),
        r = radius * (deep ? 0.6 + 0.8 * near : 1);
      ctx.globalAlpha = (look === 3 ? (scene.sides ? 0.22 : 0.4) : 0.82) * (deep ? 0.35 + 0.65 * near : 1);
      ctx.beginPath();
      for (const i of items) tracePath(ctx, kind, spots[3 * i], spots[3 * i + 1], r);
      const line = Math.max(1, r / 3);
      if (look === 2) {
        ctx.strokeStyle = paint.ink;
        ctx.lineWidth = filled ? 2.4 : line + 2.4;
        ctx.stroke();
      }
      ctx.fillStyle = ctx.strokeStyle =
        look === 3 && scene.sides ? paint.quiet : [paint[kind], paint.first, paint.second, paint[kind]][look];
      ctx.lineWidth = line;
      if (filled) ctx.fill();
      else ctx.stroke();
    }
    ctx.globalAlpha = 1;
  }

  function drawMarked(ctx, layer, kind, item, scene, radius, strong) {
    const [x, y] = layer.spots[kind].subarray(3 * item, 3 * item + 2);
    if (!inside(layer.pane, x, y)) return;
    const { paint } = scene;
    ctx.beginPath();
    tracePath(ctx, kind, x, y, radius * (strong ? 1.5 : 1.15));
    ctx.fillStyle = layer.side === "predicted" ? paint[kind] : paint.card;
    ctx.strokeStyle = strong || layer.side === "predicted" ? paint.ink : paint[kind];
    ctx.lineWidth = strong ? 2.5 : 1.3;
    ctx.fill();
    ctx.stroke();
    if (!strong) return;
    ctx.beginPath();
    tracePath(ctx, kind, x, y, radius * 2.5 + 2);
    ctx.lineWidth = 1.5;
    ctx.stroke();
  }

  // ---- lines between the two places of an item ---------------------------------------------------------------------
  function joined(scene) {
    const found = [],
      add = (kind, item, strong) => {
        if (scene.visible[kind][item]) found.push({ kind, item, strong });
      };
    for (const kind of KINDS) {
      const total = scene.visible[kind].reduce((sum, one) => sum + one, 0);
      if (total <= FEW) for (let i = 0; i < scene.visible[kind].length; i++) add(kind, i, false);
      else
        scene.disagreeing[kind]
          .filter((i) => scene.visible[kind][i])
          .slice(0, MANY_LINES)
          .forEach((i) => add(kind, i, false));
    }
    if (scene.selected) {
      const { kind, item } = scene.selected;
      for (const one of [...scene.near.predicted, ...scene.near.measured]) add(kind, one, false);
      add(kind, item, true);
    }
    if (scene.hovered) add(scene.hovered.kind, scene.hovered.item, true);
    return found;
  }

  function drawLines(ctx, [from, to], scene) {
    for (const { kind, item, strong } of joined(scene)) {
      ctx.beginPath();
      ctx.moveTo(from.spots[kind][3 * item], from.spots[kind][3 * item + 1]);
      ctx.lineTo(to.spots[kind][3 * item], to.spots[kind][3 * item + 1]);
      ctx.strokeStyle = strong ? scene.paint.ink : scene.paint.quiet;
      ctx.globalAlpha = strong ? 1 : 0.45;
      ctx.lineWidth = strong ? 1.8 : 1;
      ctx.stroke();
    }
    ctx.globalAlpha = 1;
  }

  // ---- labels ------------------------------------------------------------------------------------------------------
  function wanted(layer, scene, data) {
    const list = [],
      add = (kind, item, weight) => {
        if (scene.visible[kind][item]) list.push({ kind, item, weight });
      };
    if (scene.selected) add(scene.selected.kind, scene.selected.item, 2);
    if (scene.hovered) add(scene.hovered.kind, scene.hovered.item, 2);
    for (const item of scene.near[layer.side]) add(scene.selected.kind, item, 1);
    const labelled = scene.selected ? 0 : FREQUENT;
    for (const kind of KINDS) {
      const sides = scene.sides?.[kind];
      const order = data.byShare(kind).filter((i) => scene.visible[kind][i] && (!sides || sides[i]));
      order.slice(0, kind === "tokens" ? labelled : labelled / 4).forEach((i) => add(kind, i, 0));
    }
    return list;
  }

  function place(box, pane, taken, force) {
    const { x, y, w, h, gap } = box;
    const tries = [
      [x + gap, y - h / 2],
      [x - gap - w, y - h / 2],
      [x - w / 2, y - gap - h],
      [x - w / 2, y + gap],
    ];
    const fits = ([left, top]) =>
      left >= pane.x && top >= pane.y && left + w <= pane.x + pane.w && top + h <= pane.y + pane.h;
    const free = ([left, top]) =>
      taken.every((o) => left > o.x + o.w || left + w < o.x || top > o.y + o.h || top + h < o.y);
    const spot = tries.find((at) => fits(at) && free(at)) ?? (force ? (tries.find(fits) ?? tries[0]) : null);
    if (spot) taken.push({ x: spot[0] - 2, y: spot[1], w: w + 4, h });
    return spot;
  }

  function drawLabels(ctx, layer, scene, data, taken, done, radius) {
    ctx.textBaseline = "middle";
    ctx.textAlign = "left";
    ctx.lineJoin = "round";
    let extra = 14;
    for (const { kind, item, weight } of wanted(layer, scene, data)) {
      const [x, y] = layer.spots[kind].subarray(3 * item, 3 * item + 2),
        key = `${layer.pane.x} ${layer.pane.y} ${kind} ${item}`;
      if (done.has(key) || !inside(layer.pane, x, y) || (weight === 0 && extra <= 0)) continue;
      ctx.font = `${weight === 2 ? "650 14px" : weight === 1 ? "500 12.5px" : "400 12px"} ${scene.paint.font}`;
      const text = `\u2068${data.shown(kind, item, 32)}\u2069`,
        w = ctx.measureText(text).width;
      const spot = place({ x, y, w, h: 15, gap: radius + (weight === 2 ? 7 : 3) }, layer.pane, taken, weight === 2);
      if (!spot) continue;
      done.add(key);
      if (weight === 0) extra -= 1;
      ctx.strokeStyle = scene.paint.card;
      ctx.lineWidth = 4;
      ctx.strokeText(text, spot[0], spot[1] + 8);
      ctx.fillStyle = weight ? scene.paint.ink : scene.paint.quiet;
      ctx.fillText(text, spot[0], spot[1] + 8);
    }
  }

  // ---- panes -------------------------------------------------------------------------------------------------------
  const HEAD = 24,
    STACKED = 370;

  function panes(count, width, height) {
    if (count === 1) return [{ x: 0, y: HEAD, w: width, h: height - HEAD }];
    if (width >= STACKED) return [0, 1].map((k) => ({ x: (k * width) / 2, y: HEAD, w: width / 2, h: height - HEAD }));
    return [0, 1].map((k) => ({ x: 0, y: (k * height) / 2 + HEAD, w: width, h: height / 2 - HEAD }));
  }

  function clipped(ctx, text, width) {
    let shown = text;
    for (let n = text.length; n > 8 && ctx.measureText(shown).width > width; n--) shown = `${text.slice(0, n)}…`;
    return shown;
  }

  function drawPane(ctx, pane, title, scene, reach) {
    const { view, paint } = scene,
      cx = pane.x + pane.w / 2 + view.x,
      cy = pane.y + pane.h / 2 + view.y;
    ctx.save();
    ctx.beginPath();
    ctx.rect(pane.x, pane.y, pane.w, pane.h);
    ctx.clip();
    ctx.strokeStyle = paint.line;
    ctx.lineWidth = 1;
    ctx.beginPath();
    ctx.moveTo(pane.x, cy);
    ctx.lineTo(pane.x + pane.w, cy);
    ctx.moveTo(cx, pane.y);
    ctx.lineTo(cx, pane.y + pane.h);
    ctx.moveTo(cx + reach, cy);
    ctx.arc(cx, cy, reach, 0, 2 * Math.PI);
    ctx.stroke();
    ctx.restore();
    ctx.font = `600 13px ${paint.font}`;
    ctx.fillStyle = paint.ink;
    ctx.textAlign = "left";
    ctx.textBaseline = "middle";
    ctx.fillText(clipped(ctx, title, pane.w - 16), pane.x + 8, pane.y - HEAD / 2 + 1);
    if (pane.x || pane.y > HEAD) {
      ctx.fillStyle = paint.line;
      ctx.fillRect(pane.x, pane.y - HEAD, pane.x ? 1 : pane.w, pane.x ? pane.h + HEAD : 1);
    }
  }

  function fitted(canvas) {
    const ratio = window.devicePixelRatio || 1,
      width = canvas.clientWidth,
      height = canvas.clientHeight;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const ctx = canvas.getContext("2d");
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.clearRect(0, 0, width, height);
    return { ctx, width, height };
  }

  // ---- the map -----------------------------------------------------------------------------------------------------
  function create(canvas, data) {
    const reach = extent(data);
    let layers = [],
      radius = 4;

    function markRadius(scene) {
      const total = KINDS.reduce((sum, kind) => sum + scene.visible[kind].reduce((s, one) => s + one, 0), 0);
      return total < 250 ? 5 : total < 1200 ? 3.6 : 2.4;
    }

    // scene: layers (side, title, places), overlay, visible, sides, selected, hovered, near, disagreeing, view, paint
    function draw(scene) {
      const { ctx, width, height } = fitted(canvas);
      if (!width) return;
      const rooms = panes(scene.overlay ? 1 : scene.layers.length, width, height);
      layers = scene.layers.map((layer, k) => ({ ...layer, pane: rooms[scene.overlay ? 0 : k], spots: {} }));
      radius = markRadius(scene);
      for (const layer of layers) for (const kind of KINDS) layer.spots[kind] = project(layer, kind, scene.view, reach);
      rooms.forEach((pane, k) =>
        drawPane(
          ctx,
          pane,
          scene.overlay ? scene.title : layers[k].title,
          scene,
          0.46 * Math.min(pane.w, pane.h) * scene.view.zoom,
        ),
      );
      if (scene.overlay) drawLines(ctx, layers, scene);
      for (const layer of layers) for (const kind of ["contexts", "tokens"]) drawMarks(ctx, layer, kind, scene, radius);
      for (const layer of layers)
        for (const item of scene.near[layer.side]) {
          if (scene.visible[scene.selected.kind][item])
            drawMarked(ctx, layer, scene.selected.kind, item, scene, radius, false);
        }
      for (const one of [scene.hovered, scene.selected]) {
        if (one && scene.visible[one.kind][one.item])
          for (const layer of layers) drawMarked(ctx, layer, one.kind, one.item, scene, radius, true);
      }
      const taken = [],
        done = new Set();
      for (const layer of layers) drawLabels(ctx, layer, scene, data, taken, done, radius);
    }

    // Item nearest to a point of the canvas, or null.
    function hit(x, y, visible, most = REACH) {
      let best = null,
        least = most * most;
      for (const layer of layers) {
        if (!inside(layer.pane, x, y)) continue;
        for (const kind of KINDS) {
          const spots = layer.spots[kind];
          for (let i = 0; i < visible[kind].length; i++) {
            const distance = (spots[3 * i] - x) ** 2 + (spots[3 * i + 1] - y) ** 2;
            if (visible[kind][i] && distance < least) {
              least = distance;
              best = { kind, item: i };
            }
          }
        }
      }
      return best;
    }

    const spot = (kind, item, k = 0) => [...layers[k].spots[kind].subarray(3 * item, 3 * item + 2)];
    const paneAt = (x, y) => layers.find((layer) => inside(layer.pane, x, y))?.pane ?? layers[0]?.pane;
    return { draw, hit, spot, paneAt };
  }

  // ---- heat-maps ---------------------------------------------------------------------------------------------------
  function ramp(scale) {
    const found = new Uint8ClampedArray(3 * 256);
    for (let i = 0; i < 256; i++) {
      const at = (i / 255) * (scale.length - 1),
        low = Math.min(Math.floor(at), scale.length - 2),
        t = at - low;
      for (let c = 0; c < 3; c++) found[3 * i + c] = scale[low][c] * (1 - t) + scale[low + 1][c] * t;
    }
    return found;
  }

  // Cosines of a heat-map between two sources; null where one of them has none.
  function cells(data, kind, { a, b, t }) {
    const one = data.raw.sources[a].heat?.[kind],
      other = data.raw.sources[b].heat?.[kind];
    return one && other ? between(one, other, t) : null;
  }

  const sheet = document.createElement("canvas");

  function drawHeat(canvas, values, marked, paint) {
    const { ctx, width, height } = fitted(canvas),
      size = Math.round(Math.sqrt(values.length));
    if (!size || !width) return;
    sheet.width = sheet.height = size;
    const picture = new ImageData(size, size),
      colour = ramp(paint.scale);
    for (let i = 0; i < values.length; i++) {
      const at = 3 * Math.min(255, Math.max(0, Math.round(127.5 * (values[i] + 1))));
      for (let c = 0; c < 3; c++) picture.data[4 * i + c] = colour[at + c];
      picture.data[4 * i + 3] = 255;
    }
    sheet.getContext("2d").putImageData(picture, 0, 0);
    ctx.imageSmoothingEnabled = false;
    ctx.drawImage(sheet, 0, 0, width, height);
    if (marked < 0) return;
    ctx.strokeStyle = paint.ink;
    ctx.lineWidth = 1.5;
    ctx.strokeRect(0.75, (marked * height) / size, width - 1.5, height / size);
    ctx.strokeRect((marked * width) / size, 0.75, width / size, height - 1.5);
  }

  return { create, colours, places, cells, drawHeat, plainView, TURN };
})();
