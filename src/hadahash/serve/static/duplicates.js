// Groups of files that show the same photo.

import * as api from "./api.js";
import { number } from "./words.js";

const PAGE = 20; // groups asked for at once
const WAIT_MS = 1000; // until a search that is running is asked for again

const sizeOf = (bytes) => (bytes === null ? "" : bytes < 1e6 ? `${Math.max(1, Math.round(bytes / 1e3))} kB` : `${(bytes / 1e6).toFixed(1)} MB`);
const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

export class DuplicatesView {
  // `elements`: box, groups, more, threshold, value, status; `card` makes the card of an item.
  constructor(elements, { create, card, onError }) {
    Object.assign(this, { ...elements, create, card, onError, request: null, writable: false });
    this.more.addEventListener("click", () => this.load(this.groups.childElementCount));
    this.threshold.addEventListener("input", () => {
      this.value.textContent = this.threshold.value;
      clearTimeout(this.pending);
      this.pending = setTimeout(() => this.load(0), 200);
    });
  }

  show(stats) {
    this.writable = stats.writable;
    this.box.hidden = false;
    this.load(0, null);
  }

  hide() {
    this.request?.abort();
    clearTimeout(this.pending);
    this.box.hidden = true;
    this.groups.replaceChildren();
  }

  // Load groups from `skip` on. A threshold of null is the default, which the answer tells.
  async load(skip, threshold = this.threshold.value) {
    this.request?.abort();
    const { signal } = (this.request = new AbortController());
    if (!skip) this.status.textContent = "Comparing all photos …";
    try {
      const parameters = { skip, limit: PAGE, ...(threshold === null ? {} : { threshold }) };
      const answer = await this.ask(() => api.duplicates(parameters, signal), signal);
      if (!signal.aborted) this.fill(answer, skip);
    } catch (error) {
      if (error.name !== "AbortError") this.onError(error);
    }
  }

  // Send a request until the search that it needs is done.
  async ask(send, signal) {
    for (;;) {
      try {
        return await send();
      } catch (error) {
        if (error.status !== 503) throw error;
        await pause(WAIT_MS); // the search is running
        signal?.throwIfAborted();
      }
    }
  }

  fill(answer, skip) {
    this.threshold.max = Math.floor(answer.bits / 4);
    this.threshold.value = this.value.textContent = answer.threshold;
    const groups = answer.groups.map((group) => this.group(group, answer.threshold));
    if (skip) this.groups.append(...groups);
    else this.groups.replaceChildren(...groups);
    this.more.hidden = this.groups.childElementCount >= answer.total;
    this.status.textContent = this.summary(answer);
  }

  summary({ total, surplus, threshold, bits, dismissed, unread }) {
    const found = total
      ? `${number(total)} ${total === 1 ? "group" : "groups"}; ${number(surplus)} ${surplus === 1 ? "file is a copy" : "files are copies"} of others`
      : `No duplicates within ${threshold} of ${bits} bits`;
    const hidden = dismissed ? `; ${number(dismissed)} dismissed` : "";
    const missing = unread ? ` ${number(unread)} photos are left out: run “hadahash duplicates” once to read them.` : "";
    return `${found}${hidden}.${missing}`;
  }

  group({ count, widest, equal, items, key }, threshold) {
    const item = this.create("li", "group");
    const head = this.create("div", "group-head");
    const apart = equal ? "all equal" : `at most ${widest} bits apart`;
    const shown = items.length < count ? `; ${number(items.length)} are shown` : "";
    head.append(this.create("span", "", `${number(count)} files, ${apart}${shown}`));
    if (this.writable) head.append(this.dismissal(item, key, threshold));
    const cards = this.create("ol", "grid");
    cards.append(...items.map((each) => {
      const cell = this.create("li");
      cell.append(this.card(each, sizeOf(each.size)));
      return cell;
    }));
    item.append(head, cards);
    return item;
  }

  dismissal(item, key, threshold) {
    const button = this.create("button", "", "Dismiss");
    button.type = "button";
    button.title = "These are different photos: do not show this group again";
    button.addEventListener("click", async () => {
      button.disabled = true;
      try {
        await this.ask(() => api.dismiss(key, threshold));
        item.remove();
        this.load(0);
      } catch (error) {
        button.disabled = false;
        this.onError(error);
      }
    });
    return button;
  }
}
