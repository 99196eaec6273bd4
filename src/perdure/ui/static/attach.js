// Files and pictures that are chosen, dropped or pasted: a file goes to a folder of the agent at once, a picture with the
// message.
"use strict";

const PICTURES = ["image/png", "image/jpeg", "image/gif", "image/webp"];
let pictures = [];
let pictureKey = null; // of the message with these pictures, so that another try sends it only once

function attach(files) {
  const isPicture = (file) => PICTURES.includes(file.type);
  pictures.push(...files.filter(isPicture));
  pictureKey = null;
  showPictures();
  const others = files.filter((file) => !isPicture(file));
  if (others.length) upload(others);
}

function showPictures() {
  const list = byId("attached");
  list.replaceChildren(...pictures.map((file) => {
    const item = document.createElement("li"), button = document.createElement("button");
    button.type = "button";
    button.className = "quiet";
    button.textContent = `${file.name} ×`;
    button.setAttribute("aria-label", `Remove ${file.name}`);
    button.addEventListener("click", () => {
      pictures = pictures.filter((other) => other !== file);
      showPictures();
      byId("text").focus();
    });
    item.append(button);
    return item;
  }));
  list.hidden = !pictures.length;
}

async function upload(files) {
  const address = document.querySelector(".composer").dataset.files;
  if (!address) return;
  const body = new FormData();
  for (const file of files) body.append("file", file);
  try {
    const answer = await fetch(address, { method: "POST", headers: { "HX-Request": "true" }, body });
    showNotice(await answer.text());
  } catch {
    loseConnection();
    byId("away").querySelector("span").hidden = false;
  }
}

// Before the composer's own: a message with pictures is sent whole, and stays as it is if it is refused. What is typed
// or attached while it is on its way is of the next one.
let sending = false;
document.addEventListener("submit", async (event) => {
  if (event.target.id !== "composer" || !(pictures.length || sending)) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  if (sending) return;
  const text = byId("text").value, sent = [...pictures], body = new FormData();
  pictureKey ??= newKey();
  body.append("text", text);
  body.append("key", pictureKey);
  for (const one of sent) body.append("picture", one);
  sending = true;
  let answer;
  try { answer = await load("messages", body); } finally { sending = false; }
  if (!answer?.ok) return;
  const area = byId("text");
  pictures = pictures.filter((one) => !sent.includes(one));
  pictureKey = null;
  if (area.value.startsWith(text)) area.value = area.value.slice(text.length).trimStart();
  grow(area);
  showPictures();
}, true);

document.addEventListener("input", (event) => { if (event.target.id === "text") pictureKey = null; });
document.addEventListener("change", (event) => {
  if (event.target.id !== "attach") return;
  attach([...event.target.files]);
  event.target.value = "";
});
document.addEventListener("paste", (event) => {
  if (event.target.id !== "text" || !event.clipboardData.files.length) return;
  event.preventDefault();
  attach([...event.clipboardData.files]);
});

const holdsFiles = (event) => event.dataTransfer?.types.includes("Files");
const mark = (on) => document.querySelector(".composer")?.classList.toggle("drops", on);
document.addEventListener("dragover", (event) => { if (holdsFiles(event)) { event.preventDefault(); mark(true); } });
document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) mark(false); });
document.addEventListener("drop", (event) => {
  if (!holdsFiles(event)) return;
  event.preventDefault();
  mark(false);
  attach([...event.dataTransfer.files]);
});
