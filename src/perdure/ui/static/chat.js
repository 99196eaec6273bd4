// The chat: the page as the server has it now, the stream of the run that goes on, and messages on their way.
"use strict";

const byId = (id) => document.getElementById(id);
const log = () => byId("messages");
const chatOf = () => document.querySelector(".chat").dataset;
const atEnd = () => window.innerHeight + window.scrollY >= document.documentElement.scrollHeight - 80;
const toEnd = () => { if (log().checkVisibility()) window.scrollTo(0, document.documentElement.scrollHeight); };

// HTML that the server made.
function fragment(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return template.content;
}

// The page as it is now, or after an action, numbered as they are asked for. What is shown never goes back: the page is
// asked for once at a time, and the answer to an action is not shown if anything was asked for since, because that may
// come later and be older; the page is loaded again then. Null: there was no answer.
let asked = 0;
let shown = 0;
let loading = false;
let again = false;
async function load(action, fields) {
  if (action) return ask(action, fields);
  again = loading;
  if (loading) return null;
  loading = true;
  try { return await ask(); } finally {
    loading = false;
    if (again) load();
  }
}

async function ask(action, fields) {
  const number = ++asked;
  const { agent, conversation } = chatOf();
  const headers = { "HX-Request": "true", "HX-Current-URL": location.href };
  const address = action ? `/agents/${agent}/${action}?conversation=${conversation}` : location.href;
  let answer, html;
  try {
    answer = await fetch(address, action ? { method: "POST", headers, body: fields instanceof FormData ? fields : new URLSearchParams(fields) } : { headers });
    html = await answer.text();
  } catch {
    loseConnection();
    return null;
  }
  if (answer.status >= 502 && answer.status <= 504 && !html.includes('id="notice"')) {
    loseConnection();
    return null;
  }
  if (answer.status === 401) showSignedOut();
  else if (!answer.ok) showNotice(html);
  else if (number < (action ? asked : shown)) load();
  else if (!action && busy()) stale = true;
  else show(html, number, action);
  return answer;
}

function show(html, number, action) {
  const stay = atEnd() || action === "messages";
  shown = number;
  if (!action) remember();
  const drafts = takeDrafts();
  const eventInfo = { requestConfig: { elt: document.body, verb: "get" } };
  htmx.swap("#page", html, { swapStyle: "innerHTML", swapDelay: 0, settleDelay: 0 }, { select: "#main", selectOOB: "#inbox", eventInfo });
  putDrafts(drafts);
  if (stay) toEnd();
}

// Why something was refused, above the page as it is.
function showNotice(html) {
  const detail = html.startsWith("{") ? JSON.parse(html).detail : null;
  const page = new DOMParser().parseFromString(detail === null ? html : "", "text/html");
  let said = page.querySelector("#main > .notice");
  if (!said) {
    said = document.createElement("div");
    said.className = "notice error";
    said.textContent = detail ?? page.querySelector("#main p")?.textContent ?? "That did not work.";
  }
  document.querySelector("#main > .notice")?.remove();
  byId("main").prepend(document.adoptNode(said));
}

// After each swap of the page, also htmx's own.
function settle() {
  const { run } = chatOf();
  for (const item of [...byId("live").children])
    if (item.dataset.run !== run || isStored(item.dataset.message)) item.remove();
  dropDelivered();
  showOutbox();
  follow();
  giveBackTaken();
  if (document.activeElement === document.body && !isTouched.matches) byId("text")?.focus({ preventScroll: true });
}
document.addEventListener("htmx:afterSettle", (event) => {
  if (!byId("page").contains(event.target) || !document.querySelector(".chat")) return;
  if (event.detail.requestConfig?.elt !== document.body) shown = ++asked;
  settle();
});

// The stream of the run that goes on. What it shows of an answer that is not stored yet stands apart, in #live. A
// stream that is opened again begins where the page ends; one that has ended knows more than a page that was read before.
let source = null;
let followed = null;
let ended = false;
let streamed = new Map();
const isStored = (message) => log().querySelector(`[data-message="${CSS.escape(message)}"]`) !== null;

function follow() {
  const { run, seq } = chatOf();
  if (followed === run && (ended || (source && source.readyState !== EventSource.CLOSED))) {
    for (const [id, one] of streamed) if (one.seq > Number(seq) && !byId(id)) log().append(fragment(one.html));
    return;
  }
  source?.close();
  source = null;
  byId("live").replaceChildren();
  streamed = new Map();
  followed = run;
  ended = false;
  if (!run) return;
  const own = new EventSource(`/events/runs/${run}?after=${seq}`);
  source = own;
  own.onopen = () => byId("live").replaceChildren();
  own.onerror = () => { if (source === own) loseConnection(); };
  const on = (name, show) => own.addEventListener(name, (event) => {
    const data = JSON.parse(event.data);
    if (source !== own || data.run !== chatOf().run) return;
    const stay = atEnd();
    show(data);
    if (stay) toEnd();
  });
  on("piece", showPiece);
  on("progress", showProgress);
  on("message", (data) => { showMessage(data); renewHeld(); });
  on("void", () => byId("live").replaceChildren());
  on("closed", () => {
    own.close();
    source = null;
    ended = true;
    load();
  });
}

// A piece of an answer that is not stored yet: what has ended in it, what goes on, or plain text.
function showPiece(data) {
  if (isStored(data.message)) return;
  if (!byId(data.id)) {
    if (!data.shell) return;
    byId("live").append(fragment(data.shell));
    byId(data.id).dataset.run = data.run;
  }
  const text = byId(data.id).querySelector(".text");
  const open = text.querySelector(":scope > .goes-on");
  open?.before(fragment(data.ended));
  open?.replaceChildren(fragment(data.goes_on));
  text.append(data.plain);
  showProgress({ text: "" });
}

// What a slow model does before the first piece of its answer.
function showProgress(data) {
  const said = byId("progress");
  if (said) said.textContent = data.text && `: ${data.text}`;
}

// A stored message, in place of what was shown of it before.
function showMessage(data) {
  for (const item of [...byId("live").children]) if (item.dataset.message === data.message) item.remove();
  for (const { id, html } of data.items) {
    streamed.set(id, { html, seq: data.seq });
    if (byId("queued").contains(byId(id))) byId(id).remove();
    if (!byId(id)) log().append(fragment(html));
  }
  log().querySelector(":scope > .empty")?.remove();
  dropDelivered();
}

// Messages on their way: one after the other, each under a key by which the server knows it again. They outlive a
// reload. One that was delivered stays until a page shows it.
const boxName = () => `outbox:${chatOf().conversation}`;
const newKey = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
let outbox = JSON.parse(sessionStorage.getItem(boxName()) ?? "[]").map((one) => ({ ...one, files: (one.pictures ?? []).map(toFile) }));
let delivering = false;

// A list in the browser's store for this tab; false: it does not fit.
function keep(name, list) {
  if (!list.length) sessionStorage.removeItem(name);
  else try { sessionStorage.setItem(name, JSON.stringify(list)); } catch { return false; }
  return true;
}

// As many of the messages as fit, with their pictures once these are read.
function keepOutbox() {
  const kept = [];
  keep(boxName(), kept);
  for (const one of outbox) {
    const { key, text, pictures } = one;
    one.isKept = !one.number && pictures !== undefined && keep(boxName(), [...kept, { key, text, pictures }]);
    if (one.isKept) kept.push({ key, text, pictures });
  }
}
addEventListener("beforeunload", (event) => { if (outbox.some((one) => !one.number && !one.isKept)) event.preventDefault(); });

function put(text, files) {
  const one = { key: newKey(), text, files, pictures: files.length ? undefined : [] };
  one.reading = Promise.all(files.map(read)).then((pictures) => { one.pictures = pictures; });
  one.reading.then(() => { keepOutbox(); showOutbox(); }, () => {});
  outbox.push(one);
  keepOutbox();
}

function dropDelivered() {
  const isShown = (one) => (one.number && one.number <= shown) || document.querySelector(`.item[data-key="${one.key}"]`);
  const left = outbox.filter((one) => !isShown(one));
  if (left.length === outbox.length) return;
  outbox = left;
  keepOutbox();
  showOutbox();
}

function showOutbox() {
  const items = outbox.map((one) => {
    const item = byId("unsent").content.cloneNode(true);
    const count = one.files.length, size = count > 1 ? `${count} pictures` : count ? "1 picture" : "";
    const place = one.isKept ? "" : ". It is too long to be kept over a reload: keep this page open";
    item.querySelector(".text").textContent = one.text;
    item.querySelector(".meta").textContent = [size, away ? `Not sent yet: no connection${place}` : "Sending…"].filter(Boolean).join(" · ");
    return item;
  });
  byId("outbox").replaceChildren(...items);
}

const isOlderPage = () => new URLSearchParams(location.search).has("before");

async function deliver() {
  if (delivering) return;
  delivering = true;
  for (let one; (one = outbox.find((other) => !other.number));) {
    try { await one.reading; } catch {
      outbox = outbox.filter((other) => other !== one);
      giveBack(one.text);
      showNotice('{"detail": "A picture of this message can\'t be read any more: attach it again."}');
      continue;
    }
    const answer = await load("messages", bodyOf(one));
    if (!answer) break; // it is sent again when the connection is back
    if (answer.ok) {
      one.number = again ? asked + 1 : asked;
      if (isOlderPage()) location.href = `?conversation=${chatOf().conversation}`;
    } else {
      outbox = outbox.filter((other) => other !== one);
      giveBack(one.text, one.files);
    }
    keepOutbox();
    dropDelivered();
  }
  delivering = false;
  showOutbox();
}

const grow = (area) => { area.rows = Math.min(12, area.value.split("\n").length); };

// A message that comes back into the composer, before what was typed since.
function giveBack(text, files = []) {
  const area = byId("text");
  area.value = area.value.trim() ? `${text}\n\n${area.value}` : text;
  grow(area);
  attach(files);
  area.focus();
}

// Messages that are being taken back: of each its run, text and pictures. It is asked for once, and again when the
// connection is back. A message comes back when a page without it is here. `lost`: an answer was lost, so that a later
// refusal may mean that the message is taken back already.
const takenName = () => `taken:${chatOf().conversation}`;
let taken = JSON.parse(sessionStorage.getItem(takenName()) ?? "[]").map((one) => ({ ...one, lost: true }));
const takingBack = new Set();
function keepTaken(list) {
  taken = list;
  keep(takenName(), list);
  const ids = new Set(list.map(({ id }) => id));
  for (const button of byId("queued").querySelectorAll("[data-post]")) button.disabled = ids.has(button.closest(".item").id);
}

async function takeBack(one) {
  if (away || takingBack.has(one.id)) return;
  takingBack.add(one.id);
  const answer = await load("take-back", { run_id: one.run });
  takingBack.delete(one.id);
  if (!answer) one.lost = true;
  else if (!answer.ok && one.lost) load();
  else if (!answer.ok) keepTaken(taken.filter((other) => other !== one));
  giveBackTaken();
}

function giveBackTaken() {
  if (isOlderPage()) return; // no message that waits is in an older page
  const gone = taken.filter(({ id }) => !byId(id) && !takingBack.has(id));
  keepTaken(taken.filter(({ id }) => takingBack.has(id) || byId("queued").contains(byId(id))));
  for (const { text, pictures } of gone) giveBack(text, pictures?.map(toFile));
}

document.addEventListener("submit", (event) => {
  if (event.target.id !== "composer") return;
  event.preventDefault();
  const area = byId("text");
  if (!area.value.trim()) return;
  put(area.value, pictures);
  area.value = "";
  grow(area);
  pictures = [];
  showPictures();
  showCommands(area);
  showOutbox();
  toEnd();
  deliver();
});

// Stop, take back, try again.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-post]");
  if (!button) return;
  const { post, run } = button.dataset;
  const item = button.closest(".item");
  button.disabled = true;
  if (post === "take-back") {
    const pictures = await picturesOf(item);
    if (!pictures) { button.disabled = false; return; }
    const one = { id: item.id, run, text: item.querySelector(".text").textContent, pictures };
    if (!taken.some(({ id }) => id === one.id)) keepTaken([...taken, one]);
    takeBack(taken.find(({ id }) => id === one.id));
    return;
  }
  await load(post, { run_id: run });
  button.disabled = false;
});

document.addEventListener("connection", async () => {
  showOutbox();
  if (away) return;
  await deliver();
  await Promise.all(taken.map(takeBack));
  load();
});

// The commands that fit what is typed after a slash; one that is chosen takes its place.
function showCommands(area) {
  const list = byId("commands");
  if (!list) return;
  const typed = /^\/\S*$/.test(area.value);
  for (const one of list.children) one.hidden = !one.querySelector("button").dataset.command.startsWith(area.value);
  list.hidden = !typed || ![...list.children].some((one) => !one.hidden);
}
document.addEventListener("click", (event) => {
  const command = event.target.dataset?.command, area = byId("text");
  if (!command) return;
  area.value = `${command} `;
  area.focus();
  showCommands(area);
});
document.addEventListener("input", (event) => {
  if (!event.target.matches("#text")) return;
  grow(event.target);
  showCommands(event.target);
});
refresh = () => load();
isShown = ({ run, memory }) => run === followed && (source !== null || !memory);
settle();
toEnd();
deliver();
taken.forEach(takeBack);
