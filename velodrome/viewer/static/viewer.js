// Keys, and pages that follow a growing file. The pages work without it.

{
const page = document.body.dataset.page;
const rows = () => [...document.querySelectorAll("[data-row]")];
let here = -1;

function select(place) {
  const all = rows();
  if (!all.length) return;
  here = Math.max(0, Math.min(place, all.length - 1));
  all.forEach((row, index) => row.classList.toggle("here", index === here));
  const target = all[here].querySelector("a.link") ?? all[here];
  target.focus({ preventScroll: true, focusVisible: true });
  all[here].scrollIntoView({ block: "nearest" });
}

function follow(key) {
  const link = [...document.querySelectorAll(`a[data-key="${key}"]`)].pop();
  if (link) link.click();
}

function current() {
  const held = document.activeElement?.closest("[data-row]");
  const place = held ? rows().indexOf(held) : -1;
  return place >= 0 ? place : here;
}

const help = document.getElementById("help");

// Every key of this page: its description and its function. The script of a page adds keys; keys with the same
// description share a line of the help.
const keys = ((window.velo ??= {}).keys ??= {});
Object.assign(keys, {
  j: ["next and previous row, or message", () => select(current() + 1)],
  k: ["next and previous row, or message", () => select(current() - 1)],
  Enter: ["open the row", null],
  n: ["next and previous page, or rollout within the filter", () => follow("n")],
  p: ["next and previous page, or rollout within the filter", () => follow("p")],
  "/": ["search and filter", () => {
    const field = document.querySelector("[data-search]");
    if (field) { field.focus(); field.select(); } else follow("u");
  }],
  u: ["up: back to the list", () => follow("u")],
  t: ["all repeats of this task", () => follow("t")],
  "?": ["this list", showHelp],
});

function showHelp() {
  const lines = new Map();
  for (const [key, [words]] of Object.entries(keys)) lines.set(words, [...(lines.get(words) ?? []), key]);
  const element = (name, ...inside) => { const made = document.createElement(name); made.append(...inside); return made; };
  help.querySelector("dl").replaceChildren(...[...lines].flatMap(([words, names]) => [
    element("dt", ...names.flatMap((name) => [element("kbd", name), " "])), element("dd", words),
  ]));
  help.showModal();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const typing = event.target.closest("input:not([type=checkbox], [type=radio]), select, textarea");
  if (typing) {
    if (event.key === "Escape") { typing.blur(); select(Math.max(here, 0)); }
    return;
  }
  if (document.querySelector("dialog[open]")) return;
  const act = Object.hasOwn(keys, event.key) && keys[event.key][1];
  if (act) { event.preventDefault(); act(event); }
});

const button = document.querySelector("[data-help]");
button.hidden = false;
button.addEventListener("click", showHelp);

// Replaces the live parts of the page that differ in a newer page. A part that is settled or has the focus stays.
function renew(fresh) {
  let isComplete = true;
  for (const old of document.querySelectorAll("[data-live]")) {
    const next = fresh.querySelector(`[data-live="${CSS.escape(old.dataset.live)}"]`);
    if (!next || old.hasAttribute("data-settled") || next.outerHTML === old.outerHTML) continue;
    if (old.contains(document.activeElement)) isComplete = false;
    else old.replaceWith(next);
  }
  if (isComplete) document.body.dataset.version = fresh.body.dataset.version;
}

const PULSE_MS = 2000;
const CALM_MS = 10000;

async function beat() {
  let pause = CALM_MS;
  try {
    if (!document.hidden) {
      const pulse = await (await fetch(document.body.dataset.pulse)).json();
      if (pulse.live || document.querySelector(".pending")) pause = PULSE_MS;
      if (pulse.version !== document.body.dataset.version) {
        const news = document.querySelector("[data-news]");
        const before = document.querySelector('[data-live="tally"]')?.textContent;
        const answer = await fetch(location.href);
        if (answer.ok) renew(new DOMParser().parseFromString(await answer.text(), "text/html"));
        const after = document.querySelector('[data-live="tally"]')?.textContent;
        const settled = document.querySelector('[data-live="list"][data-settled]');
        if (news && settled && before !== after && before !== "counting") news.hidden = false;
      }
    }
  } catch {
    pause = CALM_MS; // the viewer has ended, or is restarting
  }
  setTimeout(beat, pause);
}

if (document.body.dataset.pulse && page !== "rollout") setTimeout(beat, PULSE_MS);
}
