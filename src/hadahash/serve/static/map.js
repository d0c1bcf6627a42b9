// The map of the collection, for mouse, touch and arrow keys.

import { show } from "./api.js";
import { color, mark, prepare } from "./draw.js";

export class CollectionMap {
  constructor(canvas, tip, live, choose) {
    Object.assign(this, { canvas, tip, live, choose, points: [], labels: [], hits: new Map(), query: null, at: -1 });
    canvas.addEventListener("pointermove", (event) => this.look(this.nearest(event, 16)));
    canvas.addEventListener("pointerleave", () => this.look(-1));
    canvas.addEventListener("blur", () => this.look(-1));
    canvas.addEventListener("click", (event) => this.take(this.nearest(event, 24)));
    canvas.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  fill(data) {
    this.labels = data.labels;
    this.points = data.ids.map((id, at) => ({ id, x: data.x[at], y: data.y[at], label: data.label[at] }));
    this.places = new Map(this.points.map((point, at) => [String(point.id), at]));
    this.draw();
  }

  highlight(queryId, ids) {
    this.query = queryId === null ? null : String(queryId);
    this.hits = new Set(ids.map(String));
    this.draw();
  }

  place(point) {
    const half = this.canvas.clientWidth / 2;
    const reach = half - 14;
    return [half + point.x * reach, half - point.y * reach];
  }

  draw() {
    const side = this.canvas.clientWidth;
    if (!side) return;
    const pen = prepare(this.canvas, side, side);
    const size = Math.max(1.7, Math.min(4, 90 / Math.sqrt(this.points.length + 1)));
    const searched = this.hits.size > 0;
    const chosen = [];
    pen.globalAlpha = searched ? 0.28 : 0.8;
    for (const point of this.points) {
      if (this.hits.has(String(point.id)) || String(point.id) === this.query) chosen.push(point);
      else mark(pen, point.label, ...this.place(point), size);
    }
    pen.globalAlpha = 1;
    for (const point of chosen) mark(pen, point.label, ...this.place(point), size + 1.4);
    const at = this.places?.get(this.query);
    if (at !== undefined) this.ring(pen, this.points[at], 9, color("--bit-diff"));
    if (this.at >= 0) this.ring(pen, this.points[this.at], 7, color("--ink"));
  }

  ring(pen, point, size, tone) {
    pen.strokeStyle = tone;
    pen.lineWidth = 2;
    pen.beginPath();
    pen.arc(...this.place(point), size, 0, 7);
    pen.stroke();
  }

  nearest(event, within) {
    let [best, found] = [within * within, -1];
    this.points.forEach((point, at) => {
      const [x, y] = this.place(point);
      const far = (x - event.offsetX) ** 2 + (y - event.offsetY) ** 2;
      if (far < best) [best, found] = [far, at];
    });
    return found;
  }

  look(at) {
    if (at === this.at) return;
    this.at = at;
    this.draw();
    this.tip.hidden = at < 0;
    if (at < 0) return;
    const point = this.points[at];
    const name = point.label < 0 ? String(point.id) : this.labels[point.label];
    const [x, y] = this.place(point);
    const side = this.canvas.clientWidth;
    this.tip.style.left = `${x > side / 2 ? x - 132 : x + 12}px`;
    this.tip.style.top = `${Math.max(0, Math.min(side - 150, y - 70))}px`;
    this.tip.querySelector("span").textContent = name;
    const img = this.tip.querySelector("img");
    img.removeAttribute("src");
    show(img, point.id).catch(() => {});
    this.live.textContent = `${name}, ${point.id}`;
  }

  take(at) {
    if (at >= 0) this.choose(this.points[at].id);
  }

  // An arrow key moves to the nearest point in that direction.
  key(event) {
    const ways = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
    const way = ways[event.key];
    if (event.key === "Enter") this.take(this.at);
    if (!way || !this.points.length) return;
    event.preventDefault();
    const from = this.points[this.at] || { x: 0, y: 0 };
    let [best, found] = [Infinity, -1];
    this.points.forEach((point, at) => {
      const [x, y] = [point.x - from.x, point.y - from.y];
      const along = x * way[0] + y * way[1];
      const aside = Math.abs(x * way[1]) + Math.abs(y * way[0]);
      if (at !== this.at && along > 1e-3 && along >= aside && along + 2 * aside < best) {
        [best, found] = [along + 2 * aside, at];
      }
    });
    if (found >= 0) this.look(found);
  }
}
