// What an operator may do: each asks first and says what will happen, and shows in words what went wrong.

import * as agent from "./agent.js";
import { el, nameOf, setAttribute, setText, setWords, show } from "./elements.js";
import { plain, say } from "./words.js";

const dialog = document.getElementById("confirm");
const [title, says, field, error, go, cancel] = ["h2", ".says", ".field", "[role=alert]", ".go", ".cancel"].map((it) =>
  dialog.querySelector(it),
);
const input = field.querySelector("input");
const done = document.getElementById("done");
let run = null;

/** Ask; `action(text)` runs when it is confirmed, with what was typed if there is a `label`; `missing`: if nothing was. */
function confirm({ heading, sentences, button, isFinal = false, label = null, missing = null, most = 200, action, after, name }) {
  setText(title, say(heading));
  says.replaceChildren(
    ...sentences.map((parts) => el("p", {}, ...parts.map((it) => (typeof it === "string" ? say(it) : it)))),
  );
  setText(error, "");
  setText(go, say(button));
  go.classList.toggle("danger", isFinal);
  show(field, label !== null);
  setText(field.querySelector("span"), say(label ?? ""));
  input.value = "";
  input.maxLength = most;
  setAttribute(input, "aria-required", missing !== null ? "true" : null); // not `required`, whose words are the browser's
  run = async () => {
    const text = label === null ? undefined : input.value.trim();
    if (text === "" && missing !== null) {
      setText(error, missing);
      return input.focus();
    }
    go.disabled = true;
    try {
      await action(text);
      dialog.close();
      setWords(done, after(text), [name ?? text]);
    } catch (failure) {
      if (!(failure instanceof agent.CallFailed)) throw failure;
      setText(error, `That was refused: ${plain(failure.message)}.`);
    } finally {
      go.disabled = false;
    }
    return undefined;
  };
  dialog.showModal();
  (label === null ? cancel : input).focus();
}

dialog.querySelector("form").addEventListener("submit", (event) => {
  event.preventDefault();
  void run();
});
cancel.addEventListener("click", () => dialog.close());

/** A button that opens a question; its label for screen readers has the name, too. */
export function button(text, name, onClick) {
  const node = el(
    "button",
    { type: "button", class: "small", "aria-label": name === "" ? null : `${text} ${name}` },
    text,
  );
  node.addEventListener("click", onClick);
  return node;
}

const SAY_WHY = "Say why first.";

export function exclude(name) {
  confirm({
    heading: "Exclude a member?",
    sentences: [
      ["What ", nameOf(name), " says no longer counts at this site, and its new changes of {arms} are not taken."],
      ["Its stops that are known stay. Every site decides for itself: tell the others. You can include it again."],
    ],
    label: "Why, for this site's people",
    missing: SAY_WHY,
    button: "Exclude this member",
    isFinal: true,
    name,
    action: (reason) => agent.exclude(name, reason),
    after: () => `${name} no longer counts here.`,
  });
}

export function include(name) {
  confirm({
    heading: "Include a member?",
    sentences: [["What ", nameOf(name), " says will count at this site again."]],
    label: "Why, if you like",
    button: "Include this member",
    name,
    action: (reason) => agent.include(name, reason),
    after: () => `${name} counts again.`,
  });
}

const CHANGES = {
  suspend: {
    heading: "Suspend this {arm}?",
    says: " will be given to nobody, at this site at once and at every other site as soon as it has heard of it; the page shows who has. Nobody has to consent. What is reported of earlier patients still counts.",
    button: "Suspend this {arm}",
    after: "is suspended.",
  },
  resume: {
    heading: "Resume this {arm}?",
    says: " will be given again: at this site at once, at others once they accept it.",
    button: "Resume this {arm}",
    after: "is given again.",
  },
  retire: {
    heading: "Retire this {arm} for good?",
    says: " will be given to nobody. This is final here, and wherever it is accepted; elsewhere it suspends the {arm}. It cannot be undone.",
    button: "Retire this {arm} for good",
    isFinal: true,
    after: "is retired.",
  },
};

/** `whom`: for which patients alone, in words, with their `levels`; null: for all. */
export function changeArm(change, name, whom = null, levels = null) {
  const { says: sentence, after, ...words } = CHANGES[change];
  const only = whom === null ? [] : [["This is for these patients alone: ", nameOf(whom), ". For all others nothing changes."]];
  confirm({
    ...words,
    sentences: [[nameOf(name), whom === null ? sentence : sentence.replace("to nobody", "to none of them")], ...only],
    label: "Why, in a few words that every site shows",
    missing: SAY_WHY,
    name,
    action: (reason) => agent.changeArm(change, name, reason, levels),
    after: () => `${name} ${whom === null ? after : after.replace(".", ` for ${whom}.`)}`,
  });
}

export function addArm() {
  confirm({
    heading: "Add a new {arm}",
    sentences: [
      [
        "It will be given at this site at once, and at other sites once they accept it. Sites know it by its name: use the same spelling everywhere. A name cannot be changed later.",
      ],
    ],
    label: "Name of the new {arm}",
    missing: "Type a name first.",
    most: 64,
    button: "Add this {arm}",
    action: (name) => agent.changeArm("add", name),
    after: (name) => `${name} is added.`,
  });
}

export function accept(change) {
  const isFinal = change.change === "retire";
  const what = { add: "add", resume: "resume", suspend: "suspend", retire: "retire" }[change.change];
  confirm({
    heading: "Accept a change of another site?",
    sentences: [
      [nameOf(change.by), ` asks to ${what} `, nameOf(change.arm), "."],
      [
        isFinal
          ? "A retirement is final: it is never given here again."
          : "It will count at this site at once. All waiting changes of this {arm} are accepted with it, except a retirement.",
      ],
    ],
    button: isFinal ? "Accept the retirement" : "Accept",
    isFinal,
    label: "Why, if you like",
    name: change.arm,
    action: (reason) => agent.acceptArm(change.arm, isFinal, reason),
    after: () => `Accepted: ${what} ${change.arm}.`,
  });
}
