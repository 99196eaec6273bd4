// Plots: each <figure data-plot> holds its numbers as JSON: { x: [seconds], series: [{ label, values, unit }] }.
"use strict";

const moment = (second, parts) => new Date(second * 1000).toLocaleString("en-GB", parts);

// What is written of the moments of an axis whose ticks are so many seconds apart.
function parts(step) {
  if (step >= 28 * 86400) return { month: "short", year: "numeric" };
  if (step >= 86400) return { day: "numeric", month: "short" };
  return { hour: "2-digit", minute: "2-digit", ...(step < 60 && { second: "2-digit" }), ...(step < 1 && { fractionalSecondDigits: step < 0.1 ? 2 : 1 }) };
}

function draw(figure) {
  if (figure.querySelector(".uplot")) return;
  const { x, series } = JSON.parse(figure.dataset.plot);
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const font = `12px ${getComputedStyle(document.body).fontFamily}`;
  const axis = { font, stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, space: 80 };
  const width = () => figure.querySelector("figcaption").clientWidth; // without the figure's padding
  const plot = new uPlot({
    width: width(),
    height: 180,
    series: [{ value: (_, second) => (second == null ? "–" : moment(second, { dateStyle: "medium", timeStyle: "short" })) }, ...series.map((one, place) => ({
      label: one.label, stroke: colour(`--p${place}`), width: 2, points: { size: 5 },
      value: (_, value) => (value === null ? "–" : one.unit === "$" ? `$${+value.toPrecision(3)}` : value.toLocaleString()),
    }))],
    axes: [{ ...axis, values: (_, ticks, axis, space, step) => ticks.map((tick) => moment(tick, parts(step))) }, { ...axis, size: 64, space: 40, values: (_, ticks) => ticks.map((tick) => String(+tick.toPrecision(3))) }],
    hooks: { // no pointer over it: the newest values
      ready: [(plot) => plot.setLegend({ idx: x.length - 1 })],
      setCursor: [(plot) => { if (plot.cursor.idx == null) plot.setLegend({ idx: x.length - 1 }); }],
    },
    scales: { y: { range: (_, low, high) => [0, (high || 1) * 1.1] } },
  }, [x, ...series.map((one) => one.values)], figure);
  new ResizeObserver(() => plot.setSize({ width: width(), height: 180 })).observe(figure);
}

const drawAll = () => document.querySelectorAll("figure[data-plot]").forEach(draw);
document.addEventListener("htmx:afterSettle", drawAll);
drawAll();
