"use strict";
// What the pages do beyond themselves. Every page works without it.

const PAUSE = 2000;
const SLOW = 10000; // while a stream tells of changes: in case it told them to nobody
const AGAIN = 30000;
const EVENTS = new URL("../events", document.currentScript.src);
const spoken = document.getElementById("say");

// `seen`: also for those who do not listen.
function say(words, seen = false) {
  if (spoken.textContent !== words) spoken.textContent = words;
  spoken.className = seen ? "banner" : "hidden";
}

// --- live: a stream says when a region is worth another look; while there is no stream, the region
// --- is fetched again every 2 s as long as something in it is unfinished

function unfinished(region) {
  return region.firstElementChild?.dataset.state === "unfinished";
}

function watch(region) {
  region.looked = Date.now();
  listen(region);
  setInterval(() => {
    const waited = Date.now() - region.looked;
    const worth = unfinished(region) || region.away;
    if (worth && waited >= (region.heard ? SLOW : PAUSE)) look(region);
  }, PAUSE);
}

// One stream for each tab that is seen: browsers open six connections to a host, no more.
function listen(region) {
  if (!region.dataset.of || region.ended || region.source || document.hidden) return;
  const source = new EventSource(`${EVENTS}?of=${encodeURIComponent(region.dataset.of)}`);
  region.source = source;
  source.addEventListener("hello", () => {
    region.heard = true;
    if (unfinished(region) || region.missed) look(region); // it may have changed before we listened
    region.missed = false;
  });
  source.addEventListener("change", () => look(region));
  source.addEventListener("error", () => {
    if (region.heard) look(region); // the session may have ended, or the service be away
    region.heard = false;
    region.missed = true;
    if (source.readyState !== EventSource.CLOSED) return; // the browser connects again by itself
    region.source = null;
    setTimeout(() => listen(region), AGAIN);
  });
}

function deafen(region) {
  region.source?.close();
  region.source = null;
  region.heard = false;
  region.missed = true;
}

// One look at a time; what is told meanwhile is worth one more.
async function look(region) {
  region.wanted = true;
  if (region.looking) return;
  region.looking = true;
  while (region.wanted && !region.ended) {
    region.wanted = false;
    await refresh(region);
  }
  region.looking = false;
}

async function refresh(region) {
  region.looked = Date.now();
  if (document.hidden) return;
  if (selecting(region)) return void setTimeout(() => look(region), PAUSE);
  const asked = region.dataset.live;
  const answer = await fetch(asked, { credentials: "same-origin", redirect: "error" }).catch(() => null);
  if (!answer || answer.status >= 500) {
    region.away = (region.away ?? 0) + 1; // once is a restart, or this page that is left
    if (region.away > 1) say("The service does not answer. This page tries again by itself.", true);
    return;
  }
  if (region.away > 1) say("The service answers again.");
  region.away = 0;
  if (answer.status === 401) {
    region.ended = true;
    deafen(region);
    return say("Your session has ended. Load the page again to sign in.", true);
  }
  if (answer.status === 404) return location.reload();
  const html = answer.ok ? await answer.text() : null;
  if (html !== null && asked === region.dataset.live) renew(region, html);
}

document.addEventListener("visibilitychange", () => {
  for (const region of document.querySelectorAll("[data-live]")) {
    if (document.hidden) deafen(region);
    else listen(region);
  }
});

// --- turning: a link marked so changes its region only, and the address of the page ---

async function turn(region, link) {
  const target = new URL(link.href);
  const live = new URL(target);
  live.searchParams.set("part", "live");
  let answer;
  try {
    answer = await fetch(live, { credentials: "same-origin", redirect: "error" });
  } catch {
    return location.assign(target);
  }
  if (!answer.ok) return location.assign(target);
  const html = await answer.text();
  region.dataset.live = live.pathname + live.search;
  history.replaceState(null, "", target);
  renew(region, html);
}

function selecting(region) {
  const selection = getSelection();
  return !selection.isCollapsed && region.contains(selection.anchorNode);
}

// The row that it acts on, where there are several alike.
function owner(one) {
  if (one.matches("tbody a, [type=checkbox]")) return one.href ?? one.value;
  return one.closest("details")?.id ?? one.form?.querySelector("[type=hidden]")?.value;
}

// What can have the focus, each by what it is and of, numbered among its equals: rows come and go above it.
function focusable(region) {
  const [found, seen] = [new Map(), new Map()];
  for (const one of region.querySelectorAll("a, button, input, summary")) {
    const what = ["id", "href", "name", "value"].map((name) => one.getAttribute(name));
    const kind = JSON.stringify([one.localName, owner(one), ...what]);
    const place = seen.get(kind) ?? 0;
    seen.set(kind, place + 1);
    found.set(`${place} ${kind}`, one);
  }
  return found;
}

function renew(region, html) {
  const fresh = new DOMParser().parseFromString(html, "text/html").body.firstElementChild;
  if (!fresh) return;
  // What the reader did to the old one goes on in the new one.
  const old = [...focusable(region)];
  const focus = old.findIndex(([, one]) => one === document.activeElement);
  const owned = focus >= 0 ? owner(old[focus][1]) : null;
  const typed = new Map([...region.querySelectorAll("input[id]")].map((field) => [field.id, field.value]));
  const open = new Set([...region.querySelectorAll("details[id][open]")].map((part) => part.id));
  const ticked = new Set([...region.querySelectorAll("input:checked")].map((box) => box.value));
  const words = fresh.dataset.say;
  const kept = region.querySelector("[data-keep]");
  const next = fresh.querySelector("[data-keep]");
  if (kept && kept.dataset.keep === next?.dataset.keep) around(kept, next, region, fresh);
  else region.replaceChildren(fresh);
  for (const box of region.querySelectorAll("input[type=checkbox]")) box.checked = ticked.has(box.value);
  for (const [id, value] of typed) {
    const field = document.getElementById(id);
    if (field && field.type !== "checkbox") field.value = value;
  }
  for (const part of region.querySelectorAll("details[id]")) part.open ||= open.has(part.id);
  reveal(region);
  if (focus >= 0) {
    const now = focusable(region);
    const next = now.get(old[focus][0]) ?? [...now.values()][focus];
    if (next && owner(next) === owned) next.focus({ preventScroll: true });
  }
  if (words) say(words);
}

// Everything but one element is put into the new one's place: a player or viewer begins again when it
// is as much as moved.
function around(kept, next, region, fresh) {
  for (let old = kept, one = next; one !== fresh && old.parentElement !== region;) {
    const [before, after] = [[], []];
    for (let node = one.previousSibling; node; node = node.previousSibling) before.unshift(node);
    for (let node = one.nextSibling; node; node = node.nextSibling) after.push(node);
    while (old.previousSibling) old.previousSibling.remove();
    while (old.nextSibling) old.nextSibling.remove();
    old.before(...before);
    old.after(...after);
    [old, one] = [old.parentElement, one.parentElement];
    for (const { name } of [...old.attributes]) if (!one.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of one.attributes) old.setAttribute(name, value);
  }
}

// --- what only works with a script is hidden until there is one ---

function reveal(root) {
  for (const part of root.querySelectorAll("[data-copy], [data-all], [data-more]")) {
    part.hidden = false;
  }
}

// --- copy ---

async function copy(button) {
  const source = document.getElementById(button.dataset.copy);
  try {
    await navigator.clipboard.writeText(source.textContent);
  } catch {
    // Browsers give the clipboard to https and localhost only: select, so that one key does it.
    getSelection().selectAllChildren(source);
    return say("Selected. Press Ctrl+C to copy.", true);
  }
  const label = button.innerHTML;
  button.textContent = "Copied";
  say("Copied");
  setTimeout(() => { button.innerHTML = label; }, 1500);
}

// --- clicks ---

const TICKS = "td [type=checkbox]:is([name=id], [name=pick])";
let lastTicked = null; // with shift, all boxes from that of this document on follow

function plain(event) {
  return event.button === 0 && !(event.ctrlKey || event.metaKey || event.shiftKey || event.altKey);
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("[data-inside] a[data-turn]");
  if (link && plain(event)) {
    event.preventDefault();
    turn(link.closest("[data-inside]"), link);
  }
  const time = event.target.closest("[data-seek]");
  const player = time && document.querySelector(".original :is(audio, video)");
  if (player && plain(event)) {
    event.preventDefault();
    player.currentTime = Number(time.dataset.seek);
    player.play().catch(() => {});
    player.scrollIntoView({ block: "nearest" });
  }
  // The page of a PDF: the link shows it in the frame, which may be out of sight.
  if (event.target.closest("[target=original]")) {
    document.querySelector(".original")?.scrollIntoView({ block: "nearest" });
  }
  const button = event.target.closest("[data-copy], [data-more]");
  if (button?.dataset.copy) copy(button);
  if (button?.dataset.more !== undefined) {
    const rows = document.querySelector("[data-rows]");
    const row = rows.lastElementChild.cloneNode(true);
    for (const field of row.querySelectorAll("input")) field.value = "";
    rows.append(row);
    row.querySelector("input").focus();
  }
  if (event.target.matches(TICKS)) {
    const boxes = [...document.querySelectorAll(TICKS)];
    // By its value: the list may have been brought up to date meanwhile.
    const [from, to] = [boxes.findIndex((box) => box.value === lastTicked), boxes.indexOf(event.target)];
    if (event.shiftKey && from >= 0) {
      for (const box of boxes.slice(Math.min(from, to), Math.max(from, to))) box.checked = event.target.checked;
    }
    lastTicked = event.target.value;
  }
  if (event.target.matches("[data-all]")) {
    for (const box of event.target.closest("table").querySelectorAll(TICKS)) {
      box.checked = event.target.checked;
    }
  }
});

// --- a form goes to the organisation that its page shows; another tab may be signed in to another ---

document.addEventListener("submit", ({ target }) => {
  const { org } = document.documentElement.dataset;
  if (!org || target.method !== "post") return;
  const at = new URL(target.getAttribute("action"), location);
  at.searchParams.set("org", org);
  target.setAttribute("action", at.pathname + at.search);
}, true);

// --- a form is sent once, however often its button is clicked while the answer is on its way ---

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (event.defaultPrevented || form.method !== "post") return;
  if (form.sent) return event.preventDefault();
  form.sent = true;
  setTimeout(() => { form.sent = false; }, AGAIN); // the person may have stopped the browser
});

addEventListener("pageshow", () => {
  for (const form of document.forms) form.sent = false; // Back brings the page as it was left
});

// --- a secret is shown once: to load its page again would make another ---

const once = document.querySelector("[data-once]");
if (once) history.replaceState(null, "", once.dataset.once);

// --- what a form was refused for is said beside the field, and is where the person goes on ---

const refusal = document.querySelector("main .box[role=alert]");
if (refusal) {
  const { wrong } = refusal.dataset;
  const field = wrong && document.querySelector(`form:not([role=search]) [name="${CSS.escape(wrong)}"]:not([type=hidden])`);
  if (field) {
    const others = field.getAttribute("aria-describedby") ?? "";
    field.setAttribute("aria-describedby", `${refusal.id} ${others}`.trim());
    field.setAttribute("aria-invalid", "true");
    refusal.removeAttribute("role"); // it is read with the field
    refusal.className = "fault";
    (field.closest(".field, fieldset") ?? field.parentElement).append(refusal);
  }
  refusal.tabIndex = -1;
  (field || refusal).focus();
  refusal.scrollIntoView({ block: "nearest" });
}

// --- a link from another site comes without the cookie; asked from here, the session counts ---

const gate = document.querySelector("[data-session]");
if (gate) {
  fetch(gate.dataset.session, { credentials: "same-origin" }).then((answer) => {
    if (answer.status === 204) location.replace(gate.dataset.next);
  }, () => {});
}

reveal(document);
document.querySelectorAll("[data-live]").forEach(watch);
// The part of a document that a hit names; when the text came later, the browser did not find it.
document.querySelector(".chunk.wanted")?.scrollIntoView({ block: "center" });
// On a phone the rooms are one row that scrolls. Not by scrollIntoView: then Tab would begin there.
const current = document.querySelector(".top nav [aria-current]");
if (current) {
  const [room, row] = [current.getBoundingClientRect(), current.parentElement.getBoundingClientRect()];
  current.parentElement.scrollLeft += room.x + room.width / 2 - row.x - row.width / 2;
}
