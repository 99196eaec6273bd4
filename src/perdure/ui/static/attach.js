// Files and pictures that are chosen, dropped or pasted: a file goes to a folder of the agent at once, a picture with the
// message.
"use strict";

const PICTURES = ["image/png", "image/jpeg", "image/gif", "image/webp"];
let pictures = [];

function attach(files) {
  const isPicture = (file) => PICTURES.includes(file.type);
  pictures.push(...files.filter(isPicture));
  showPictures();
  const others = files.filter((file) => !isPicture(file));
  if (others.length) upload(others);
}

// A picture as text, which outlives a reload, and back.
const read = (file) => new Promise((resolve, reject) => {
  const reader = new FileReader();
  reader.onload = () => resolve({ name: file.name, data: reader.result });
  reader.onerror = () => reject(reader.error);
  reader.readAsDataURL(file);
});
function toFile({ name, data }) {
  const [, type, coded] = data.match(/^data:([^;]*);base64,(.*)$/);
  return new File([Uint8Array.from(atob(coded), (char) => char.charCodeAt(0))], name, { type });
}

// The pictures of a message that waits on the server; null: it can't be reached, or has them no more.
async function picturesOf(item) {
  try {
    return await Promise.all([...item.querySelectorAll("img")].map(async ({ src, alt }) => {
      const answer = await fetch(src);
      return answer.ok ? read(new File([await answer.blob()], alt, { type: answer.headers.get("content-type") })) : Promise.reject();
    }));
  } catch (error) {
    if (error) loseConnection(); else load();
    return null;
  }
}

function bodyOf({ text, key, files }) {
  if (!files.length) return { text, key };
  const body = new FormData();
  body.append("text", text);
  body.append("key", key);
  for (const one of files) body.append("picture", one);
  return body;
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
