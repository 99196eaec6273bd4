// Pages that follow what happens elsewhere, keyboard shortcuts and the theme. Everything else is htmx on the server's HTML.
"use strict";

// The page as it is now. The target holds #main and is never replaced, so an answer that comes after another one still
// finds it. The chat loads itself.
let refresh = () => htmx.ajax("GET", location.href, { target: "#page", select: "#main", swap: "innerHTML show:none" });

// The page as it is now, when something changed elsewhere. What is being typed or read here comes first: the page
// waits until no field of it holds a change and none has the focus.
let feed = null;
let stale = false;
let isShown = () => false; // whether a page has shown a change already

function busy() {
  const main = document.getElementById("main");
  const fields = [...main.querySelectorAll("input, textarea")].filter((field) => !field.closest("#composer"));
  const active = document.activeElement;
  return main.querySelector("[data-conflict]") !== null || fields.includes(active) || active.matches("#main select, #main > .notice button")
    || main.querySelector("details[open] :focus") !== null
    || fields.some((field) => field.value !== field.defaultValue || field.checked !== field.defaultChecked);
}

let place = null;
let notice = null;
let requests = 0;

async function renew() {
  if (!stale || requests || busy()) return;
  stale = false;
  await refresh();
}

// What has the focus before the page is replaced, and the notice, whose undo still holds; and both after it.
function remember() {
  const active = document.activeElement;
  const href = active.getAttribute?.("href");
  place = active.id ? `#${CSS.escape(active.id)}` : href ? `#main a[href="${CSS.escape(href)}"]` : null;
  notice = document.querySelector("#main > .notice")?.cloneNode(true) ?? null;
}

function restore() {
  if (notice) { document.getElementById("main").prepend(notice); htmx.process(notice); }
  if (place) document.querySelector(place)?.focus({ preventScroll: true });
  notice = place = null;
}

// Just before the page is replaced: an action that was sent meanwhile, or a field, comes first.
document.addEventListener("htmx:beforeSwap", (event) => {
  const { elt, verb } = event.detail.requestConfig;
  if (event.detail.xhr.status === 401) {
    event.detail.shouldSwap = false;
    showSignedOut();
    return;
  }
  if (elt !== document.body) {
    const { status } = event.detail.xhr;
    const isConflict = event.detail.serverResponse.includes("data-conflict"); // it holds what was typed
    const refused = status === 403 || status === 429 || (status >= 400 && !isConflict && holdsText(elt));
    if (verb === "post" && (refused || elt.matches("[data-keep]"))) showOnlyNotice(event.detail);
    return;
  }
  if (requests > 1 || busy()) {
    event.detail.shouldSwap = false;
    stale = true;
    return;
  }
  remember();
});

// What was typed into a form stays when its action was refused, or changes nothing here, as does the page whose
// action this key may not do; the notice says why or what.
const holdsText = (form) => [...form.querySelectorAll("input:not([type=hidden]), textarea")]
  .some((field) => field.value !== field.defaultValue);

// The page stays as it is, with what was entered.
function showSignedOut() {
  document.querySelector("#main > .notice")?.remove();
  document.getElementById("main").prepend(document.getElementById("signed-out").content.cloneNode(true));
}

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
  const { live: address, since } = (document.hidden ? null : document.querySelector("[data-live]"))?.dataset ?? {};
  if (feed?.address === address) return;
  feed?.source.close();
  feed = null;
  if (!address) return;
  feed = { address, source: new EventSource(`${address}${address.includes("?") ? "&" : "?"}since=${since}`) };
  feed.source.addEventListener("changed", (event) => {
    if (isShown(JSON.parse(event.data))) return; // while it ran
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

// What the back button shows is the page as it was: the browser asks nobody, also for requests before it is loaded.
addEventListener("pageshow", ({ persisted }) => {
  if (!persisted && performance.getEntriesByType("navigation")[0]?.type !== "back_forward") return;
  stale = true;
  setTimeout(renew, 200);
});

// A text that scrolls can be scrolled by the keyboard: not every browser lets Tab come to it by itself.
function reachScrolled({ target }) {
  for (const text of target.querySelectorAll("pre"))
    if (text.scrollWidth > text.clientWidth || text.scrollHeight > text.clientHeight) text.tabIndex = 0;
}
document.addEventListener("toggle", reachScrolled, true);
document.addEventListener("htmx:afterSettle", reachScrolled);
addEventListener("load", () => reachScrolled({ target: document }));

// The fields of a rule that its kind needs.
function showRuleFields() {
  for (const kind of document.querySelectorAll("[data-rule]"))
    for (const part of kind.form.querySelectorAll("[data-for]")) part.hidden = !part.dataset.for.split(" ").includes(kind.value);
}
document.addEventListener("change", showRuleFields);
document.addEventListener("htmx:afterSettle", showRuleFields);
showRuleFields();

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-submit]")) event.target.form.submit();
  const name = event.target.dataset.checkAll;
  if (name) document.querySelectorAll(`input[name="${name}"]`).forEach((one) => { one.checked = event.target.checked; });
});
const isTouched = matchMedia("(hover: none)"); // a keyboard on the screen: it hides the messages, and Enter is a new line
document.addEventListener("keydown", (event) => {
  if (event.target.matches("[data-enter]") && event.key === "Enter" && !event.shiftKey && !event.isComposing && !isTouched.matches) {
    event.preventDefault();
    event.target.form.requestSubmit();
  } else if (event.target.matches("select[data-submit], [hx-trigger=change] select") && /^(Arrow(Up|Down)|\w)$/.test(event.key)) {
    event.preventDefault(); // an entry that is only passed is not chosen
    event.target.showPicker();
  } else if (event.target.matches("form:has([name=call_id]) input") && event.key === "Enter" && !event.isComposing) {
    event.preventDefault(); // a reason may be one against the call: a button decides
    event.target.form.querySelector("button").focus();
  } else if (event.key === "/" && !event.target.matches("input, textarea, select")) {
    const search = document.getElementById("find");
    if (search) { event.preventDefault(); search.focus(); }
  }
});
// Pages by a plain address of the network have no clipboard of the newer kind.
async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}
document.addEventListener("click", async (event) => {
  if (event.target.matches("#backup [download]")) setTimeout(() => htmx.trigger("#backup", "taken"), 1000);
  const { copy: id, copyCode, copyItem } = event.target.dataset ?? {};
  const from = id ? document.getElementById(id)
    : copyCode !== undefined ? event.target.closest(".code").querySelector("code")
    : copyItem !== undefined ? event.target.closest(".item").querySelector(".text") : null;
  if (!from) return;
  await copy(copyItem === undefined ? from.textContent : from.innerText);
  event.target.textContent = "Copied";
  setTimeout(() => { event.target.textContent = "Copy"; }, 2000);
});

// A server that can't be reached is asked until it answers; "connection" says that it went away, or is back.
const PAUSE_MS = 500, LONGEST_PAUSE_MS = 8000, STEADY_MS = 30_000;
let away = false;
let pause = PAUSE_MS, backAt = 0; // it is asked later and later while it only seems to be back
function loseConnection() {
  if (away) return;
  away = true;
  pause = Date.now() - backAt < STEADY_MS ? Math.min(2 * pause, LONGEST_PAUSE_MS) : PAUSE_MS;
  document.getElementById("away").hidden = false;
  document.dispatchEvent(new Event("connection"));
  setTimeout(findConnection, pause);
}
async function findConnection() {
  try {
    const answer = await fetch("/static/theme.js", { method: "HEAD", cache: "no-store" });
    if (!answer.ok) throw new Error(answer.statusText);
  } catch {
    setTimeout(findConnection, 1000);
    return;
  }
  away = false;
  backAt = Date.now();
  const said = document.getElementById("away");
  said.hidden = said.querySelector("span").hidden = true;
  document.dispatchEvent(new Event("connection"));
}
document.addEventListener("htmx:sendError", (event) => {
  loseConnection();
  document.querySelector("#away > span").hidden = event.detail.requestConfig.verb !== "post";
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
  if (event.detail.requestConfig?.elt === document.body) restore();
  else if (!document.querySelector(".chat") || document.querySelector("[data-conflict]")) focusResult(event.detail.requestConfig);
});
