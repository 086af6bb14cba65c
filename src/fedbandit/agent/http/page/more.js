// Long tables begin with their first rows; a button shows the rest.

import { setAttribute, setText, show } from "./elements.js";
import { say } from "./words.js";

const FIRST = 12;

export class More {
  #isOpen = false;
  #redraw = () => {};

  constructor(button, what) {
    Object.assign(this, { button, what });
    button.addEventListener("click", () => {
      this.#isOpen = !this.#isOpen;
      this.#redraw();
    });
  }

  /** The items to show now; `redraw` is called when that has changed. */
  of(items, redraw) {
    this.#redraw = redraw;
    show(this.button, items.length > FIRST + 2);
    setText(this.button, this.#isOpen ? `Show the first ${FIRST} only` : `Show all ${items.length} ${say(this.what)}`);
    setAttribute(this.button, "aria-expanded", String(this.#isOpen));
    return this.#isOpen || items.length <= FIRST + 2 ? items : items.slice(0, FIRST);
  }
}
