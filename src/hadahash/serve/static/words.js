// Results in plain words.

export const number = (value) => value.toLocaleString("en");

const percent = ({ similarity }) => `${Math.round(100 * similarity)} %`;

// What the number of a result is, under each ranking. It never rises from one result to the next.
const KINDS = {
  hamming: { badge: (hit) => String(hit.distance), about: "Number of bits in which the codes differ" },
  class: { badge: (hit) => `${percent(hit)} alike`, about: "How sure it is that both show the same kind of thing" },
  photo: { badge: (hit) => `${percent(hit)} alike`, about: "How much kind and content agree; 100 %: as much as possible" },
};

// The badge of a result: its text and its tooltip.
export function similarity(hit, rank) {
  const { badge, about } = KINDS[rank];
  const text = badge(hit);
  return hit.same_photo ? { text: "same photo", title: `${text}. ${about}.` } : { text, title: `${about}.` };
}

// The same for screen readers.
export function description(hit, rank, stats) {
  const same = hit.same_photo ? "same photo, " : "";
  return same + (rank === "hamming" ? `${hit.distance} of ${stats.bits} bits differ` : KINDS[rank].badge(hit));
}

export function summary(hits, { exact, rank }, stats) {
  if (!hits.length) return "No image within this distance. Raise “Maximum distance” or choose more labels.";
  const count = `${number(hits.length)} most similar of ${number(stats.items)} images`;
  const end = exact ? "" : " Approximate search.";
  if (rank !== "hamming") return `${count}${photos(hits)}.${end}`;
  const farthest = Math.max(...hits.map((hit) => hit.distance));
  const range = farthest ? `at most ${farthest} of ${stats.bits} bits differ` : "all have the same code";
  return `${count}; ${range}.${end}`;
}

function photos(hits) {
  const same = hits.filter((hit) => hit.same_photo).length;
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
