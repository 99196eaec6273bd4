// The chat's stream, keyboard shortcuts and the theme. Everything else is htmx on the server's HTML.
"use strict";

const log = () => document.getElementById("messages");
const atEnd = () => window.innerHeight + window.scrollY >= document.documentElement.scrollHeight - 80;
const toEnd = () => window.scrollTo(0, document.documentElement.scrollHeight);
let source = null;
let followed = null;

function element(tag, className, text) {
  const made = document.createElement(tag);
  made.className = className;
  if (text) made.textContent = text;
  return made;
}

// A piece of an answer that is not stored yet.
function showDelta(delta) {
  const id = `live-${delta.message}-${delta.kind.startsWith("tool") ? "call" : delta.kind}-${delta.index}`;
  let item = document.getElementById(id);
  if (!item) {
    item = element("article", `item live ${delta.kind === "text" ? "assistant" : "reasoning"}`);
    item.id = id;
    item.dataset.message = delta.message;
    item.append(element("p", "who", { text: "Agent", reasoning: "Thinking" }[delta.kind] || "Calls a tool"));
    item.append(element("div", "text"));
    log().append(item);
  }
  item.lastChild.append(delta.kind === "tool_name" ? `${delta.text} ` : delta.text);
  showProgress({ text: "" });
}

// What a slow model does before the first piece of its answer.
function showProgress(data) {
  const shown = document.getElementById("progress");
  if (shown) shown.textContent = data.text && `: ${data.text}`;
}

// The server's HTML of a message, in place of what was shown of it before.
function showMessage(data) {
  for (const live of log().querySelectorAll(".live")) if (live.dataset.message === data.message) live.remove();
  for (const item of data.items) {
    const template = document.createElement("template");
    template.innerHTML = item.html;
    const shown = document.getElementById(item.id);
    if (shown) shown.replaceWith(template.content); else log().append(template.content);
  }
  log().querySelector(":scope > .empty")?.remove();
}

// How full the window is, while the agent works.
let barAsked = false;
async function renewBar() {
  if (barAsked) return;
  barAsked = true;
  const answer = await fetch(location.href);
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  barAsked = false;
  const bar = page.querySelector(".context-bar");
  if (answer.ok && bar) document.querySelector(".context-bar")?.replaceWith(document.adoptNode(bar));
}

function follow() {
  source?.close();
  source = null;
  const run = document.querySelector(".chat")?.dataset.run;
  if (!run) return;
  followed = run;
  source = new EventSource(`/events/runs/${run}`);
  const on = (name, show) => source.addEventListener(name, (event) => {
    const stay = atEnd();
    show(JSON.parse(event.data));
    if (stay) toEnd();
  });
  on("delta", showDelta);
  on("progress", showProgress);
  on("message", (data) => { showMessage(data); renewBar(); });
  on("void", () => log().querySelectorAll(".live").forEach((live) => live.remove()));
  on("closed", () => {
    source.close();
    source = null;
    refresh();
  });
}

// The page as it is now: its context bar, and calls that wait. The composer is kept, with what is typed.
// The target holds #main and is never replaced, so an answer that comes after another one still finds it.
const refresh = () => htmx.ajax("GET", location.href, { target: "#page", select: "#main", swap: "innerHTML show:none" });

// The page as it is now, when something changed elsewhere. What is being typed or read here comes first: the page
// waits until no field of it holds a change and none has the focus.
let feed = null;
let stale = false;

function busy() {
  const main = document.getElementById("main");
  const fields = [...main.querySelectorAll("input, textarea")].filter((field) => !field.closest("#composer"));
  const active = document.activeElement;
  return fields.includes(active) || active.matches("#main select, #main > .notice button")
    || main.querySelector("details[open] :focus") !== null
    || fields.some((field) => field.value !== field.defaultValue || field.checked !== field.defaultChecked);
}

let place = null;
let notice = null;
let requests = 0;

async function renew() {
  if (!stale || source || requests || busy()) return;
  stale = false;
  await refresh();
}

// What had the focus before the page was replaced, and the notice, whose undo still holds.
function restore() {
  if (notice) { document.getElementById("main").prepend(notice); htmx.process(notice); }
  notice = null;
  const active = place && document.querySelector(place);
  active?.focus({ preventScroll: true });
  return active;
}

// Just before the page is replaced: an action that was sent meanwhile, or a field, comes first.
document.addEventListener("htmx:beforeSwap", (event) => {
  const { elt, verb } = event.detail.requestConfig;
  if (elt !== document.body) {
    const { status } = event.detail.xhr;
    const isConflict = event.detail.serverResponse.includes("data-conflict"); // it holds what was typed
    const refused = status === 403 || status === 429 || (status >= 400 && !isConflict && holdsText(elt));
    if (verb === "post" && (refused || elt.matches("[data-keep]"))) showOnlyNotice(event.detail);
    return;
  }
  if (requests > 1 || (!source && busy())) {
    event.detail.shouldSwap = false;
    stale = true;
    return;
  }
  const active = document.activeElement;
  const href = active.getAttribute?.("href");
  place = active.id ? `#${CSS.escape(active.id)}` : href ? `#main a[href="${CSS.escape(href)}"]` : null;
  notice = document.querySelector("#main > .notice")?.cloneNode(true) ?? null;
});

// What was typed into a form stays when its action was refused, or changes nothing here, as does the page whose
// action this key may not do; the notice says why or what.
const holdsText = (form) => [...form.querySelectorAll("input:not([type=hidden]), textarea")]
  .some((field) => field.value !== field.defaultValue);

function showOnlyNotice(swap) {
  if (!swap.serverResponse.includes('id="notice"')) return;
  document.querySelector("#main > .notice")?.remove();
  swap.target = document.getElementById("main");
  swap.selectOverride = "#main > .notice";
  swap.swapOverride = "afterbegin show:none";
}

// After an action the focus goes to what it did, or found: the button that was pressed is gone.
function focusResult({ elt, verb }) {
  if (elt === document.body || verb !== "post" || document.activeElement !== document.body) return;
  if (elt.closest("[hx-push-url]")) window.scrollTo(0, 0);
  const main = document.getElementById("main");
  const said = main.querySelector(":scope > .notice");
  const found = main.querySelector("[data-result]");
  if (found && (!said || found.matches("[data-conflict]"))) { found.focus(); found.scrollIntoView(); } else (said ?? main).focus({ preventScroll: true });
}
document.addEventListener("htmx:beforeSend", () => { requests += 1; });
document.addEventListener("htmx:afterRequest", () => { requests -= 1; });
document.addEventListener("htmx:afterSettle", () => setTimeout(renew, 200));

function listen() {
  const address = document.hidden ? null : document.querySelector("[data-live]")?.dataset.live;
  if (feed?.address === address) return;
  feed?.source.close();
  feed = null;
  if (!address) return;
  feed = { address, source: new EventSource(address) };
  feed.source.addEventListener("changed", (event) => {
    const { run, memory } = JSON.parse(event.data);
    if (run === followed && (source || !memory)) return; // it was shown while it ran
    stale = true;
    renew();
  });
}

document.addEventListener("focusout", () => setTimeout(renew, 200));
document.addEventListener("visibilitychange", () => {
  listen();
  if (!document.hidden && document.querySelector("[data-live]")) { stale = true; renew(); }
});
document.addEventListener("htmx:afterSettle", listen);
addEventListener("load", listen);

// The fields of a rule that its kind needs.
function showRuleFields() {
  for (const kind of document.querySelectorAll("[data-rule]"))
    for (const part of kind.form.querySelectorAll("[data-for]")) part.hidden = !part.dataset.for.split(" ").includes(kind.value);
}
document.addEventListener("change", showRuleFields);
document.addEventListener("htmx:afterSettle", showRuleFields);
showRuleFields();

function grow(area) {
  area.rows = Math.min(12, Math.max(area.rows > 1 && !area.closest(".composer") ? area.rows : 1, area.value.split("\n").length));
}

// The commands that fit what is typed after a slash; one that is chosen takes its place.
function showCommands(area) {
  const list = document.getElementById("commands");
  if (!list) return;
  const typed = /^\/\S*$/.test(area.value);
  for (const one of list.children) one.hidden = !one.querySelector("button").dataset.command.startsWith(area.value);
  list.hidden = !typed || ![...list.children].some((one) => !one.hidden);
}
document.addEventListener("click", (event) => {
  const command = event.target.dataset?.command, area = document.getElementById("text");
  if (!command) return;
  area.value = `${command} `;
  area.focus();
  showCommands(area);
});
document.addEventListener("input", (event) => {
  if (!event.target.matches(".composer textarea")) return;
  grow(event.target);
  showCommands(event.target);
});
document.addEventListener("change", (event) => {
  if (event.target.matches("[data-submit]")) event.target.form.submit();
  const name = event.target.dataset.checkAll;
  if (name) document.querySelectorAll(`input[name="${name}"]`).forEach((one) => { one.checked = event.target.checked; });
});
document.addEventListener("keydown", (event) => {
  if (event.target.matches(".composer textarea") && event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    event.target.form.requestSubmit();
  } else if (event.target.matches("select[data-submit], [hx-trigger=change] select") && /^(Arrow(Up|Down)|\w)$/.test(event.key)) {
    event.preventDefault(); // an entry that is only passed is not chosen
    event.target.showPicker();
  } else if (event.target.matches("[name=reason]") && event.key === "Enter" && !event.isComposing) {
    event.preventDefault(); // a reason may be one against it: a button decides
    event.target.form.querySelector("button").focus();
  } else if (event.key === "/" && !event.target.matches("input, textarea, select")) {
    const search = document.getElementById("find");
    if (search) { event.preventDefault(); search.focus(); }
  }
});
document.addEventListener("click", async (event) => {
  if (event.target.matches("#backup [download]")) setTimeout(() => htmx.trigger("#backup", "taken"), 1000);
  const id = event.target.dataset?.copy;
  if (!id) return;
  await navigator.clipboard.writeText(document.getElementById(id).textContent);
  event.target.textContent = "Copied";
});
document.addEventListener("submit", (event) => {
  const key = event.target.querySelector("input[name=key][type=hidden]");
  if (key) key.value = crypto.randomUUID();
}, true);
// What was sent leaves the composer at once, and comes back if it did not arrive.
document.addEventListener("htmx:beforeSend", (event) => {
  if (event.target.id !== "composer") return;
  const text = document.getElementById("text");
  event.target.dataset.sent = text.value;
  text.value = "";
  text.rows = 1;
  showCommands(text);
});
document.addEventListener("htmx:afterRequest", (event) => {
  const status = event.detail.xhr.status;
  if (event.target.id !== "composer" || (status >= 200 && status < 400)) return;
  const text = document.getElementById("text");
  text.value = event.target.dataset.sent + text.value;
});
// A form that takes long shows how much of its files is sent, and then that the server works.
const barOf = (event) => event.target.querySelector?.("progress.sent");
document.addEventListener("htmx:beforeSend", (event) => { const bar = barOf(event); if (bar) bar.hidden = false; });
document.addEventListener("htmx:xhr:progress", (event) => {
  const bar = barOf(event), { lengthComputable, loaded, total } = event.detail;
  if (bar && lengthComputable && loaded < total) { bar.max = total; bar.value = loaded; } else bar?.removeAttribute("value");
});
document.addEventListener("htmx:afterRequest", (event) => { const bar = barOf(event); if (bar) bar.hidden = true; });
document.getElementById("theme")?.addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
});
document.addEventListener("htmx:afterSettle", (event) => {
  if (!document.getElementById("page")?.contains(event.target)) return;
  const active = event.detail.requestConfig.elt === document.body && restore();
  if (!document.querySelector(".chat")) { focusResult(event.detail.requestConfig); return; }
  follow();
  if (active && active.id !== "text") return;
  toEnd();
  document.getElementById("text")?.focus({ preventScroll: true });
});
if (document.querySelector(".chat")) { follow(); toEnd(); }
