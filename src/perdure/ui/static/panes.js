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

// Blocks that somebody is editing, taken out of the page before it is replaced, and put back with what was typed.
const isEdited = (block) => [...block.querySelectorAll("textarea")].some((area) => area.value !== area.defaultValue);

function takeDrafts() {
  const taken = [...document.querySelectorAll(".held [data-block]")].filter(isEdited);
  for (const block of taken) block.remove();
  return taken;
}

function putDrafts(taken) {
  for (const block of taken) document.getElementById(block.id)?.replaceWith(block);
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
      const drafts = takeDrafts(), { scrollTop } = old;
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
