"use strict";
// Keys: `/` searches, Ctrl-K goes to a page, `?` says so. Every page works without them.

const KEYS = [
  ["/", "Search"],
  ["Ctrl K", "Go to a page, or search for what you type"],
  ["?", "Show these keys"],
  ["Esc", "Close"],
];
const pages = [...document.querySelectorAll(".top nav a")].map((link) => [link.textContent.trim(), link.href]);
const search = document.querySelector('.top nav a[href$="/console/search"]');

function element(name, given, ...inside) {
  const made = Object.assign(document.createElement(name), given);
  made.append(...inside);
  return made;
}

// A dialog of the browser: it keeps the focus, ends with Esc, and gives the focus back.
function dialog(title, ...inside) {
  const heading = element("h2", { id: "dialog-title", textContent: title });
  const close = element("button", { type: "button", className: "plain small", textContent: "Close" });
  const made = element("dialog", { className: "keys-dialog" }, element("div", { className: "head" }, heading, close), ...inside);
  made.setAttribute("aria-labelledby", "dialog-title");
  close.addEventListener("click", () => made.close());
  made.addEventListener("close", () => made.remove());
  document.body.append(made);
  made.showModal();
  return made;
}

function help() {
  const rows = KEYS.flatMap(([key, does]) => [element("dt", {}, element("kbd", { textContent: key })), element("dd", { textContent: does })]);
  dialog("Keys", element("dl", {}, ...rows));
}

function matching(typed) {
  const words = typed.trim().toLowerCase();
  const found = pages.filter(([name]) => name.toLowerCase().includes(words));
  if (words && search) {
    const target = new URL(search.href);
    target.searchParams.set("q", typed.trim());
    found.push([`Search for “${typed.trim()}”`, target.href]);
  }
  return found;
}

function palette() {
  const field = element("input", { type: "search", id: "palette", autocomplete: "off", maxLength: 500, spellcheck: false });
  const list = element("ul", { className: "palette" });
  const draw = () => list.replaceChildren(...matching(field.value).map(([name, href]) => element("li", {}, element("a", { href, textContent: name }))));
  const shown = dialog("Go to", element("label", { htmlFor: "palette", textContent: "Page, or words to search for" }), field, list);
  shown.addEventListener("keydown", (event) => {
    const links = [...list.querySelectorAll("a")];
    const at = links.indexOf(document.activeElement);
    if (event.key === "Enter" && document.activeElement === field && links.length) links[0].click();
    else if (event.key === "ArrowDown") (links[at + 1] ?? links[0])?.focus();
    else if (event.key === "ArrowUp") (links[at - 1] ?? field).focus();
    else return;
    if (event.key !== "Enter" || document.activeElement === field) event.preventDefault();
  });
  field.addEventListener("input", draw);
  draw();
  field.focus();
}

function toSearch() {
  const field = document.querySelector("main input[type=search]");
  if (field) field.select();
  if (field) field.focus();
  else if (search) location.assign(search.href);
}

function typing(target) {
  return target.matches("input:not([type=checkbox]):not([type=radio]), textarea, select") || target.isContentEditable;
}

if (pages.length) {
  document.addEventListener("keydown", (event) => {
    if (event.isComposing || document.querySelector("dialog[open]")) return;
    const command = (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey;
    if (command && event.key.toLowerCase() === "k") {
      event.preventDefault();
      return palette();
    }
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
    if (event.key !== "/" && event.key !== "?") return;
    event.preventDefault();
    if (event.key === "/") toSearch();
    else help();
  });
  for (const button of document.querySelectorAll("[data-keys]")) {
    button.hidden = false;
    button.addEventListener("click", help);
  }
}
