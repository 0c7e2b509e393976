// Marks of the slider of the section Explore: loss gaps below it, trained models above it.
const exploreSlider = (() => {
  const { make, short, nats } = explorePanel;
  const LABELS = 6,
    LINE = 18;

  // Left edge of a mark: the thumb of the slider is 16 pixels wide.
  const along = (data, at) => `calc(8px + ${data.path.length > 1 ? at / (data.path.length - 1) : 0} * (100% - 16px))`;

  function layTicks(data, element) {
    const last = data.path.length - 1,
      every = Math.max(1, Math.ceil(data.path.length / LABELS));
    const placed = (mark, k) => {
      mark.style.left = along(data, k);
      return mark;
    };
    const ticks = data.path.map((source, k) => placed(make("i"), k));
    const labels = data.path.flatMap((source, k) => {
      const { gap } = data.raw.sources[source],
        isLabelled = k === last || (k % every === 0 && last - k >= every);
      return isLabelled ? [placed(make("span", {}, gap === 0 ? "limit" : short(gap)), k)] : [];
    });
    element.replaceChildren(...ticks, ...labels);
  }

  // A button per model above its place on the path, in as many rows as keep the labels apart.
  function layStands(data, element, width) {
    const ends = [],
      last = data.path.length - 1 || 1;
    const standing = data.raw.models.map((one, k) => ({ one, k })).filter(({ one }) => Number.isFinite(one.position));
    const buttons = standing
      .sort((a, b) => a.one.position - b.one.position)
      .map(({ one, k }) => {
        const at = (one.position / last) * width,
          half = 12 + 3.4 * one.label.length;
        const turn = at < half ? "right" : at > width - half ? "left" : "middle";
        const left = { right: at - 6, left: at - 2 * half, middle: at - half }[turn];
        let row = ends.findIndex((end) => end < left);
        if (row < 0) row = ends.push(0) - 1;
        ends[row] = left + 2 * half;
        const title = one.gap === null ? one.label : `${one.label}: loss gap ${nats(one.gap)}`;
        const button = make(
          "button",
          { type: "button", "data-stand": k, class: turn, title },
          make("bdi", {}, one.label),
        );
        button.style.left = along(data, one.position);
        button.dataset.row = row;
        return button;
      });
    for (const button of buttons) {
      button.style.top = `${(ends.length - 1 - button.dataset.row) * LINE}px`;
      button.style.setProperty("--drop", `${button.dataset.row * LINE + 4}px`);
    }
    element.style.height = `${ends.length * LINE}px`;
    element.replaceChildren(...buttons);
  }

  return { layTicks, layStands };
})();
