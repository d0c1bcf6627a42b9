// Results in plain words.

export const number = (value) => value.toLocaleString("en");

// Content bits estimate the angle between two images: all equal is 0, half of them is a right angle.
const percent = (distance, bits) => Math.max(0, Math.round(100 * Math.cos((Math.PI * distance) / bits)));

// The number of bits that say how much two images look alike: content bits, or codes made without labels.
const lookOf = (hit, stats) => hit.content_distance ?? (stats.content_bits || stats.same_photo === null ? null : hit.distance);

function isSame(hit, stats) {
  const look = lookOf(hit, stats);
  return look !== null && look <= stats.same_photo;
}

// The badge of a result.
export function similarity(hit, stats) {
  const look = lookOf(hit, stats);
  if (look === null) return String(hit.distance);
  return isSame(hit, stats) ? "same photo" : `${percent(look, stats.content_bits || stats.bits)} % alike`;
}

// The same for screen readers.
export function description(hit, stats) {
  return lookOf(hit, stats) === null ? `${hit.distance} of ${stats.bits} bits differ` : similarity(hit, stats);
}

export function summary(hits, { exact }, stats) {
  if (!hits.length) return "No image within this distance. Raise “Maximum distance” or choose more labels.";
  const count = `${number(hits.length)} most similar of ${number(stats.items)} images`;
  const end = exact ? "" : " Approximate search.";
  if (lookOf(hits[0], stats) !== null) return `${count}${photos(hits, stats)}.${end}`;
  const farthest = Math.max(...hits.map((hit) => hit.distance));
  const range = farthest ? `at most ${farthest} of ${stats.bits} bits differ` : "all have the same code";
  return `${count}; ${range}.${end}`;
}

function photos(hits, stats) {
  const same = hits.filter((hit) => isSame(hit, stats)).length;
  if (!same) return "";
  return same === 1 ? "; one of them is the same photo" : `; ${number(same)} of them are the same photo`;
}

// The dial between "same kind" and "same photo": its middle is the model's own weight.
export const weightAt = (position, stats) => Number((stats.weight * 2.5 ** position).toPrecision(6));

export function dialWords(position) {
  if (position === 0) return "both";
  const goal = position < 0 ? "same kind" : "same photo";
  return Math.abs(position) === 4 ? goal : `more of the ${goal}`;
}
