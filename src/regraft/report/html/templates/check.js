"use strict";
// Filter the findings by the form, whose state is the query of the address, so that it can be linked.
const form = document.getElementById("filters");
const fields = ["query", "status", "rule", "file"].map((name) => document.getElementById(name));
const cards = [...document.querySelectorAll("article[data-rule]")];

function fits(card) {
  const [query, status, rule, file] = fields.map((field) => field.value);
  return (!status || card.dataset.status === status) && (!rule || card.dataset.rule === rule)
    && (!file || card.dataset.file === file)
    && query.toLowerCase().split(/\s+/).every((word) => card.textContent.toLowerCase().includes(word));
}

function filter() {
  for (const card of cards) card.hidden = !fits(card);
  const number = cards.filter((card) => !card.hidden).length;
  document.getElementById("shown").textContent = `${number} of ${cards.length} shown`;
}

function store() {
  const state = new URLSearchParams();
  for (const field of fields) if (field.value) state.set(field.id, field.value);
  const query = state.toString();
  try { history.replaceState(null, "", (query ? `?${query}` : location.pathname) + location.hash); } catch { /* an address that may not change */ }
}

function restore() {
  const state = new URLSearchParams(location.search);
  for (const field of fields) field.value = state.get(field.id) ?? "";
  filter();
  reveal();
}

function reveal() {
  const card = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!card) return;
  if (card.hidden) {
    for (const field of fields) field.value = "";
    filter();
    store();
  }
  card.scrollIntoView();
}

function step(direction) {
  const shown = cards.filter((card) => !card.hidden);
  const place = shown.indexOf(document.activeElement.closest("article"));
  const next = shown[place < 0 ? (direction > 0 ? 0 : shown.length - 1) : place + direction];
  if (next) { next.focus(); next.scrollIntoView(); }
}

form.hidden = cards.length === 0;
form.addEventListener("submit", (event) => event.preventDefault());
for (const kind of ["input", "change"]) form.addEventListener(kind, () => { filter(); store(); });
form.addEventListener("reset", () => setTimeout(() => { filter(); store(); }));
addEventListener("hashchange", reveal);
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /INPUT|SELECT|TEXTAREA/.test(event.target.tagName)) return;
  if (event.key === "/") { event.preventDefault(); fields[0].focus(); }
  if (event.key === "j") step(1);
  if (event.key === "k") step(-1);
});
restore();
