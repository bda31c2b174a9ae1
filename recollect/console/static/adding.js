// Files on the page Add: looked at before anything is sent, then sent one by one, each with a row of
// its own. What is chosen stays chosen until it is added. Without this script the form sends all.

const form = document.querySelector("form[data-adding]");
const input = form.querySelector("input[type=file]");
const zone = input.closest("[data-drop]");
const list = zone.querySelector("[data-chosen]");
const sum = form.querySelector("[data-sent]");
const MOST = 1000; // files at a time
const BATCH = 50; // of which one request brings the first bytes
const HEAD = 8192;
const AT_ONCE = 2; // uploads
const SHOWN = 300; // documents that an address can name
const CONSOLE = new URL("..", import.meta.url).pathname; // ends in a slash
const chosen = new Set();
const added = [];
let sending = false;

function size(bytes) {
  return bytes < 1024 * 1024 ? `${Math.ceil(bytes / 1024)} kB` : `${(bytes / 1024 / 1024).toFixed(1)} MB`;
}

function part(name, className, text = "") {
  const made = document.createElement(name);
  made.className = className;
  made.textContent = text;
  return made;
}

// --- rows ---

function addRow(file, path) {
  const one = { file, path, row: document.createElement("li"), state: "waiting" };
  const away = part("button", "plain small", "Remove");
  away.type = "button";
  away.setAttribute("aria-label", `Remove ${path}`);
  away.addEventListener("click", () => remove(one));
  one.bar = document.createElement("progress");
  one.bar.max = 1;
  one.bar.hidden = true;
  one.bar.setAttribute("aria-label", path);
  one.told = part("span", "quiet");
  one.fault = part("p", "fault");
  const named = part("span", "grow");
  named.append(part("bdi", "", path), ` · ${size(file.size)}`);
  one.row.append(named, one.bar, one.told, away, one.fault);
  chosen.add(one);
  list.append(one.row);
  return one;
}

function remove(one) {
  one.stop?.();
  chosen.delete(one);
  one.row.remove();
  list.hidden = chosen.size === 0;
}

function tell(one, state, told, fault = "") {
  one.state = state;
  one.told.textContent = told;
  one.fault.textContent = fault;
  one.bar.hidden = state !== "sending";
}

// --- choosing ---

async function choose(pairs) {
  const named = new Set([...chosen].map((one) => `${one.path}/${one.file.size}`));
  const fresh = pairs.filter(([file, path]) => !named.has(`${path}/${file.size}`));
  const room = Math.max(0, MOST - chosen.size);
  const made = fresh.slice(0, room).map(([file, path]) => addRow(file, path));
  list.hidden = chosen.size === 0;
  fault("file", fresh.length > room ? `Up to ${MOST} files at a time; for more there is recollect add.` : "");
  for (let at = 0; at < made.length; at += BATCH) await look(made.slice(at, at + BATCH));
  const unfit = made.filter((one) => one.state === "unfit").length;
  say(`${chosen.size} files chosen${unfit ? `, ${unfit} of them cannot be added` : ""}`);
}

async function look(some) {
  const most = Number(input.dataset.most);
  const fitting = some.filter((one) => {
    if (one.file.size > most * 1024 * 1024) tell(one, "unfit", "will not be sent", `It is larger than ${most} MB.`);
    else if (one.file.size === 0) tell(one, "unfit", "will not be sent", "It is empty.");
    return one.state === "waiting";
  });
  const answer = await check(fitting);
  answer?.files.forEach((reason, at) => {
    if (reason) tell(fitting[at], "unfit", "will not be sent", reason);
  });
}

// Fields, and the first bytes of files. Null where nobody answers: then the sending itself tells.
async function check(some, number = 1) {
  const body = fields();
  body.append("number", String(number));
  for (const one of some) body.append("file", one.file.slice(0, HEAD, one.file.type), one.file.name);
  try {
    const answer = await fetch(`${CONSOLE}add/check`, { method: "POST", body, credentials: "same-origin" });
    if (!answer.ok) return null;
    const told = await answer.json();
    for (const name of ["tag", "customId", "metadata"]) fault(name, told.faults[name] ?? "");
    return told;
  } catch {
    return null;
  }
}

function fields() {
  const all = new FormData(form);
  all.delete("file");
  all.delete("content");
  return all;
}

function fault(name, said) {
  const line = form.querySelector(`[data-fault="${name}"]`);
  if (!line) return;
  line.textContent = said;
  line.hidden = !said;
  const field = form.querySelector(`[name="${name}"]`);
  if (!field) return;
  const others = (field.getAttribute("aria-describedby") ?? "").split(" ").filter((id) => id && id !== line.id);
  field.setAttribute("aria-describedby", [...(said ? [line.id] : []), ...others].join(" "));
  if (said) field.setAttribute("aria-invalid", "true");
  else field.removeAttribute("aria-invalid");
}

// --- folders ---

function step(read) {
  return new Promise((done, fail) => read(done, fail));
}

async function within(entry, path) {
  if (entry.isFile) return [[await step((done, fail) => entry.file(done, fail)), path + entry.name]];
  const reader = entry.createReader();
  const found = [];
  while (found.length <= MOST) {
    const some = await step((done, fail) => reader.readEntries(done, fail));
    if (!some.length) break;
    for (const one of some) {
      if (!one.name.startsWith(".")) found.push(...(await within(one, `${path}${entry.name}/`)));
    }
  }
  return found;
}

async function dropped(items) {
  // An item is gone once we wait.
  const taken = items.filter((item) => item.kind === "file")
    .map((item) => [item.webkitGetAsEntry?.(), item.getAsFile()]);
  const found = [];
  for (const [entry, file] of taken) {
    if (entry?.isDirectory) found.push(...(await within(entry, "")));
    else if (file) found.push([file, file.name]);
  }
  await choose(found);
}

// --- sending ---

function send(body, moved = () => {}, begun = () => {}) {
  return new Promise((done) => {
    const request = new XMLHttpRequest();
    begun(() => request.abort());
    request.open("POST", form.action);
    request.setRequestHeader("accept", "application/json");
    request.responseType = "json";
    request.upload.addEventListener("progress", (event) => {
      if (event.lengthComputable) moved(event.loaded / event.total);
    });
    const away = { added: [], faults: { "": "The service did not answer. Try again." } };
    const ended = { added: [], faults: { "": "Your session has ended. Sign in in another tab, then try again." } };
    const other = { added: [], faults: { "": "This page belongs to another organisation than the one to which this browser is signed in now." } };
    request.addEventListener("load", () => done(request.response ?? { 401: ended, 409: other }[request.status] ?? away));
    request.addEventListener("error", () => done(away));
    request.addEventListener("abort", () => done({ added: [], faults: {} }));
    request.send(body);
  });
}

async function sendFile(one) {
  tell(one, "sending", "");
  one.bar.value = 0;
  const body = fields();
  body.append("file", one.file, one.file.name);
  if (one.path !== one.file.name) body.append("filepath", one.path);
  const answer = await send(body, (share) => { one.bar.value = share; }, (stop) => { one.stop = stop; });
  one.stop = null;
  added.push(...answer.added);
  if (answer.added.length) {
    tell(one, "added", "added");
    chosen.delete(one);
    one.row.querySelector("button").remove();
  } else {
    tell(one, "waiting", "not added", Object.values(answer.faults).join(" "));
  }
}

async function submit() {
  const text = form.elements.content;
  const ready = [...chosen].filter((one) => one.state === "waiting");
  const number = ready.length + (text.value.trim() ? 1 : 0);
  const told = await check([], number);
  if (told && Object.keys(told.faults).length) {
    form.querySelector("[aria-invalid=true]")?.focus();
    return;
  }
  if (text.value.trim()) {
    const body = fields();
    body.append("content", text.value);
    const answer = await send(body);
    fault("content", Object.values(answer.faults).join(" "));
    added.push(...answer.added);
    if (answer.added.length) text.value = "";
  }
  const turns = Array.from({ length: AT_ONCE }, async () => {
    for (let one = ready.shift(); one; one = ready.shift()) {
      if (!chosen.has(one)) continue; // removed while others went
      await sendFile(one);
      sum.textContent = `${added.length} of ${number} added`;
    }
  });
  await Promise.all(turns);
  const left = chosen.size + (text.value.trim() ? 1 : 0);
  if (!left && added.length) return leave();
  if (!left) return void (sum.textContent = "");
  sum.textContent = `${added.length} added, ${left} not. `;
  say(sum.textContent);
  if (added.length) {
    const link = part("a", "", "See what was added");
    link.href = target();
    sum.append(link);
  }
}

function target() {
  if (added.length > SHOWN) return `${CONSOLE}documents`;
  return `${CONSOLE}progress?${new URLSearchParams(added.map((id) => ["id", id]))}`;
}

function leave() {
  sending = false;
  location.assign(target());
}

// --- events ---

function carriesFiles(event) {
  return [...event.dataTransfer.types].includes("Files");
}

input.addEventListener("change", () => {
  const files = [...input.files].map((file) => [file, file.webkitRelativePath || file.name]);
  input.value = "";
  choose(files.filter(([, path]) => !path.split("/").some((name) => name.startsWith(".") && path.includes("/"))));
});
form.querySelector("[data-folder]").addEventListener("click", () => {
  input.webkitdirectory = true;
  input.click();
  input.webkitdirectory = false;
});
form.elements.tag.addEventListener("change", () => check([]));
zone.addEventListener("dragover", (event) => {
  if (!carriesFiles(event)) return;
  event.preventDefault();
  zone.classList.add("over");
});
zone.addEventListener("dragleave", (event) => {
  if (!zone.contains(event.relatedTarget)) zone.classList.remove("over");
});
zone.addEventListener("drop", (event) => {
  if (!carriesFiles(event)) return;
  event.preventDefault();
  zone.classList.remove("over");
  dropped([...event.dataTransfer.items]);
});
form.addEventListener("submit", async (event) => {
  if (!chosen.size) return; // a text alone goes as it would without us
  event.preventDefault();
  if (sending) return;
  sending = true;
  form.setAttribute("aria-busy", "true");
  await submit();
  form.removeAttribute("aria-busy");
  sending = false;
});
addEventListener("beforeunload", (event) => {
  if (sending) event.preventDefault();
});
for (const line of form.querySelectorAll("[data-fault]:not([hidden])")) fault(line.dataset.fault, line.textContent);
form.querySelector("[aria-invalid=true]")?.focus();
for (const hint of form.querySelectorAll("[data-drop-hint], [data-folder-hint]")) hint.hidden = false;
form.querySelector("[data-plain-hint]").hidden = true;
