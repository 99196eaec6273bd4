// Beside the chat: the pane that a narrow screen shows, and blocks that light up when they change.
"use strict";

// Another pane without another page: what was typed stays.
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-pane]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  for (const one of link.parentElement.children) one.removeAttribute("aria-current");
  link.setAttribute("aria-current", "true");
  document.querySelector(".panes").dataset.pane = link.dataset.pane;
  history.replaceState(history.state, "", link.href);
  window.scrollTo(0, 0);
  toEnd();
});

// Blocks and forms that somebody is editing, taken out of the page before it is replaced, and put back with what was
// typed: a form only in the place of the same one. That of a message is in no answer to an action.
const DRAFTS = ".held [data-block], #edit, #again, #questions, .pending > form";
const isEdited = (block) => [...block.querySelectorAll("input:not([type=hidden]), textarea")]
  .some((field) => field.value !== field.defaultValue || field.checked !== field.defaultChecked)
  || [...block.querySelectorAll("option")].some((one) => one.selected !== one.defaultSelected && one.index);
const hiddenOf = (form) => [...form.querySelectorAll("input[type=hidden]")].map((field) => field.value).join();

function takeDrafts(within = document) {
  const found = [...within.querySelectorAll(DRAFTS)].filter((block) => block.id && isEdited(block));
  for (const block of found) block.remove();
  return found;
}

function putDrafts(found) {
  for (const block of found) {
    const place = document.getElementById(block.id);
    if (!place && block.matches("#edit, #again")) document.querySelector(".composer").before(block);
    else if (block.matches("[data-block]") || (place && hiddenOf(place) === hiddenOf(block))) place?.replaceWith(block);
  }
}

// What the agent holds, while it works.
let heldAsked = false;
async function renewHeld() {
  if (heldAsked) return;
  heldAsked = true;
  try {
    const answer = await fetch(location.href);
    const now = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector(".held");
    const old = document.querySelector(".held");
    if (answer.ok && now && old && !old.querySelector("[data-conflict]") && !old.contains(document.activeElement)) {
      const drafts = takeDrafts(old), { scrollTop } = old;
      old.replaceWith(document.adoptNode(now));
      htmx.process(now);
      now.scrollTop = scrollTop;
      putDrafts(drafts);
      lightUp();
    }
  } catch { /* the stream notices that the connection is away */ }
  heldAsked = false;
}

// A block whose version is another one than before is lit for a while, also over a swap of the page.
const LIT_MS = 5000;
const seen = new Map();
function lightUp() {
  const now = Date.now();
  for (const block of document.querySelectorAll(".held [data-block]")) {
    const { block: id, version } = block.dataset;
    const before = seen.get(id);
    if (before?.version !== version) seen.set(id, { version, at: before ? now : 0 });
    block.classList.toggle("lit", now - seen.get(id).at < LIT_MS);
  }
}
document.addEventListener("htmx:afterSettle", lightUp);
lightUp();
