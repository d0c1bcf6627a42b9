// Drawings: the bits of a code, and the mark of a label.

// The colors of Okabe and Ito, safe for color-blind people, and three more; neighbors also differ in shape.
const COLORS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#a89a00", "#8a8f94", "#8f63c8", "#9c6b4a"];
const SHAPES = ["circle", "square", "triangle", "diamond"];

// A color of palette.css as a canvas understands it, in the theme that is shown.
const probe = document.documentElement.appendChild(document.createElement("i"));
probe.hidden = true;
export function color(name) {
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
}

export function bitsOf(hex, bits) {
  const found = [];
  for (let at = 0; at < bits; at++) found.push((parseInt(hex[at >> 2], 16) >> (3 - (at & 3))) & 1);
  return found;
}

// Prepare a canvas for the pixel density of the screen; drawing uses CSS pixels.
export function prepare(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  return pen;
}

// Dark: 1, pale: 0. Bits that differ from the query are orange and underlined, hollow where the bit is 0.
export function drawBits(canvas, hex, bits, other = hex) {
  const mine = bitsOf(hex, bits);
  const theirs = bitsOf(other, bits);
  const differing = mine.filter((bit, at) => bit !== theirs[at]).length;
  canvas.setAttribute("aria-label", other === hex ? `Code of ${bits} bits` : `${differing} of ${bits} bits differ`);
  canvas._again = () => drawBits(canvas, hex, bits, other);
  const width = canvas.clientWidth || 150;
  const columns = Math.min(bits, width > 260 ? 32 : 16);
  const step = width / columns;
  const high = Math.min(step, 9) + 3;
  const rows = Math.ceil(bits / columns);
  canvas.style.height = `${rows * high}px`;
  const pen = prepare(canvas, width, rows * high);
  const [on, off, unlike] = ["--bit-on", "--bit-off", "--bit-diff"].map(color);
  mine.forEach((bit, at) => {
    const [x, y] = [(at % columns) * step, Math.floor(at / columns) * high];
    const [w, h] = [step - 1.5, high - 4];
    if (bit === theirs[at]) {
      pen.fillStyle = bit ? on : off;
      pen.fillRect(x, y, w, h);
      return;
    }
    pen.fillStyle = pen.strokeStyle = unlike;
    if (bit) pen.fillRect(x, y, w, h);
    else pen.strokeRect(x + 0.75, y + 0.75, w - 1.5, h - 1.5);
    pen.fillRect(x, y + h + 1, w, 1.5);
  });
}

export function mark(pen, number, x, y, size) {
  pen.fillStyle = number < 0 ? color("--soft") : COLORS[number % COLORS.length];
  const shape = SHAPES[Math.max(number, 0) % SHAPES.length];
  pen.beginPath();
  if (shape === "circle") pen.arc(x, y, size, 0, 7);
  else if (shape === "square") pen.rect(x - size * 0.88, y - size * 0.88, size * 1.76, size * 1.76);
  else if (shape === "triangle") polygon(pen, x, y, size * 1.25, 3, -Math.PI / 2);
  else polygon(pen, x, y, size * 1.25, 4, 0);
  pen.fill();
}

function polygon(pen, x, y, size, corners, turn) {
  for (let corner = 0; corner < corners; corner++) {
    const angle = turn + (2 * Math.PI * corner) / corners;
    pen.lineTo(x + size * Math.cos(angle), y + size * Math.sin(angle));
  }
  pen.closePath();
}

export function labelMark(number) {
  const canvas = document.createElement("canvas");
  canvas.setAttribute("aria-hidden", "true");
  canvas._again = () => mark(prepare(canvas, 12, 12), number, 6, 6, 4.5);
  canvas._again();
  return canvas;
}
