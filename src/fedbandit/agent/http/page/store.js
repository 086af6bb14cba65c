// Holds what is known of the agent, and tells those who draw it: at most once per frame, never in a hidden tab.

export class Store {
  #listeners = [];
  #due = false;
  #known;

  constructor(known) {
    this.#known = known;
  }

  /** What is known now. */
  get known() {
    return this.#known;
  }

  /** Call `draw(known)` after every change. */
  onChange(draw) {
    this.#listeners.push(draw);
  }

  /** Replace some of what is known. */
  set(changes) {
    this.#known = { ...this.#known, ...changes };
    if (this.#due) return;
    this.#due = true;
    requestAnimationFrame(() => {
      this.#due = false;
      for (const draw of this.#listeners) draw(this.#known);
    });
  }
}
