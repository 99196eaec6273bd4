// The graph of facts: the slider shows at once what is true on its day. Without this script its form does.
"use strict";

function showDay(slider) {
  const day = Number(slider.value), near = new Set();
  const isTrue = (one) => Number(one.dataset.since) <= day && day < Number(one.dataset.until);
  for (const edge of document.querySelectorAll(".network .edge")) {
    edge.classList.toggle("away", !isTrue(edge));
    if (isTrue(edge)) near.add(edge.dataset.from).add(edge.dataset.to);
  }
  for (const node of document.querySelectorAll(".network .node")) node.classList.toggle("faint", !near.has(node.dataset.node));
  for (const row of document.querySelectorAll("tr[data-since]")) row.hidden = !isTrue(row);
  const name = new Date((day - 719163) * 86400000) // the day on which the browser's count begins
    .toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric", timeZone: "UTC" });
  document.getElementById("day-name").textContent = name;
  slider.setAttribute("aria-valuetext", name);
}

document.addEventListener("input", (event) => { if (event.target.id === "day") showDay(event.target); });
