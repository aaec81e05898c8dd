// Reading one rollout: find, fold, raw, the outline, the waterfall, and texts to copy. The page works without it.

if (document.body.dataset.page === "rollout") {
const { keys } = window.velo;
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const one = (selector) => document.querySelector(selector);
const talk = one(".talk");
const narrow = matchMedia("(max-width: 52rem)");

// Opens every folded element around this one, so that it is visible.
function reveal(element) {
  for (let at = element.closest("details"); at; at = at.parentElement.closest("details")) at.open = true;
}

function goTo(element) {
  reveal(element);
  element.scrollIntoView({ block: element.offsetHeight > innerHeight / 2 ? "start" : "nearest" });
  element.focus({ preventScroll: true, focusVisible: true });
}

// A part of the conversation that is on another page has its address in the outline.
function follow() {
  const id = decodeURIComponent(location.hash.slice(1));
  if (!/^m\d+(-\d+)?$/.test(id)) return;
  const target = document.getElementById(id);
  if (target) return void requestAnimationFrame(() => { reveal(target); target.scrollIntoView(); });
  const number = id.match(/\d+/)[0];
  const line = all(".outline a").find((link) => new URL(link.href).searchParams.get("at") === number);
  if (line) location.replace(line.href);
}
addEventListener("hashchange", follow);
follow();

// The tool calls, in order, from the current one.
function step(selector, by) {
  const every = all(selector, talk);
  if (!every.length) return;
  const held = document.activeElement.closest(".call, .said");
  const before = held ? every.filter((each) => each === held || each.compareDocumentPosition(held) & 4) : [];
  const inside = held ? every.findIndex((each) => held.contains(each) && each !== held) : -1;
  let next = by > 0 ? (inside >= 0 ? inside : before.length) : before.length - (before.at(-1) === held ? 2 : 1);
  if (!held) next = by > 0 ? 0 : every.length - 1;
  if (next < 0 || next >= every.length) return;
  goTo(every[next]);
}

// Folding
const folds = () => all("details.fold", talk ?? document);
const foldButton = one("[data-fold]");
function foldAll() {
  const open = folds().some((each) => !each.open);
  for (const each of folds()) each.open = open;
  foldButton.textContent = open ? "Fold all" : "Unfold all";
}
addEventListener("beforeprint", () => folds().forEach((each) => { each.open = true; }));
if (foldButton) {
  foldButton.hidden = !folds().length;
  foldButton.addEventListener("click", foldAll);
}

// Raw: for the current message, and for all
function rawHere() {
  const held = document.activeElement.closest(".said") ?? one(".said.here");
  held?.querySelector(".as-raw input")?.click();
}
const rawAll = () => (one("[data-raw-all]") ?? one("#raw-all"))?.click();

// Find, on this page, also in folded parts, which are opened. The viewer searches other parts.
const field = one("#find");
const form = field?.closest(".find");
const output = form?.querySelector("output");
const canMark = typeof Highlight === "function" && CSS.highlights;
let matches = [];
let at = -1;

function search(text) {
  const wanted = text.trim().toLowerCase();
  matches = [];
  at = -1;
  if (wanted) {
    const walker = document.createTreeWalker(talk, NodeFilter.SHOW_TEXT, (node) =>
      node.parentElement.closest(".preview, .more, header label, .pages-of-talk") || isHidden(node.parentElement)
        ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT);
    while (walker.nextNode()) {
      const words = walker.currentNode.data.toLowerCase();
      for (let place = words.indexOf(wanted); place >= 0; place = words.indexOf(wanted, place + wanted.length)) {
        const range = new Range();
        range.setStart(walker.currentNode, place);
        range.setEnd(walker.currentNode, Math.min(place + wanted.length, walker.currentNode.length));
        matches.push(range);
      }
    }
  }
  if (canMark) {
    CSS.highlights.set("found", new Highlight(...matches));
    CSS.highlights.delete("found-here");
  }
  tell();
}

// Raw and drawn are both in the page; one of them is hidden.
const isHidden = (element) => {
  const form = element.closest(".drawn, .source");
  return form !== null && getComputedStyle(form).display === "none";
};

function tell() {
  for (const button of all("[data-find]")) button.hidden = !matches.length;
  if (!field.value.trim()) output.textContent = "";
  else if (matches.length) output.textContent = at < 0 ? `${matches.length} found` : `${at + 1} of ${matches.length}`;
  else output.textContent = "parts" in form.dataset ? "none on this page" : "none";
}

function show(place) {
  if (!matches.length) return;
  at = (place + matches.length) % matches.length;
  const element = matches[at].startContainer.parentElement;
  reveal(element);
  if (canMark) CSS.highlights.set("found-here", new Highlight(matches[at]));
  const box = matches[at].getBoundingClientRect();
  if (!box.height) element.scrollIntoView({ block: "center" });
  else if (box.top < 60 || box.bottom > innerHeight) scrollBy(0, box.top - innerHeight / 3);
  tell();
}

if (field && talk) {
  const asked = field.value;
  field.addEventListener("input", () => search(field.value));
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    const elsewhere = "parts" in form.dataset && field.value !== asked;
    if (elsewhere && form.requestSubmit) return; // the viewer searches all of it
    event.preventDefault();
    show(at < 0 ? 0 : at + (event.shiftKey ? -1 : 1));
  });
  for (const button of all("[data-find]")) {
    button.addEventListener("click", () => show(at < 0 ? 0 : at + Number(button.dataset.find)));
  }
  if (asked) { search(asked); show(0); }
}

// The outline follows the scrolling.
if (talk && "IntersectionObserver" in window) {
  const lines = new Map(all(".outline a").map((link) => [link.hash.slice(1), link]));
  let last = null;
  const list = one(".outline");
  const follow = (line) => {
    const [box, frame] = [line.getBoundingClientRect(), list.getBoundingClientRect()];
    const outside = box.top < frame.top || box.bottom > frame.bottom;
    if (!narrow.matches && outside) list.scrollTop += box.top - frame.top - frame.height / 3;
  };
  const first = lines.get(one(".talk > .said")?.id);
  if (first) follow(first);
  const watch = new IntersectionObserver((entries) => {
    const top = entries.filter((entry) => entry.isIntersecting).map((entry) => entry.target.id)[0];
    const line = lines.get(top);
    if (!line || line === last) return;
    last?.removeAttribute("aria-current");
    line.setAttribute("aria-current", "true");
    last = line;
    follow(line);
  }, { rootMargin: "-60px 0px -70% 0px" });
  for (const message of all(".talk > .said")) watch.observe(message);
}
if (narrow.matches) for (const list of all(".outline details")) list.open = false;

// Copying: a link to the current message, and the texts of the menu
const said = document.createElement("span");
said.className = "unseen";
said.setAttribute("role", "status");
document.body.append(said);

async function copy(text, what, button) {
  try {
    await navigator.clipboard.writeText(text);
    said.textContent = `${what} copied`;
  } catch {
    said.textContent = `${what} could not be copied`;
  }
  if (!button) return;
  const words = button.dataset.words ??= button.innerHTML;
  button.textContent = said.textContent;
  setTimeout(() => { button.innerHTML = words; }, 1500);
}

function copyLink(button) {
  const held = document.activeElement.closest(".said, .call") ?? one(".said.here");
  const address = new URL(one("a[data-link]")?.href ?? location.href);
  if (held?.id) address.hash = held.id;
  copy(address.href, "Link", button instanceof HTMLElement ? button : null);
}

for (const button of all("[data-copy], [data-copy-link], [data-print]")) button.hidden = false;
for (const button of all("[data-copy]")) {
  button.addEventListener("click", () => copy(button.parentElement.querySelector("pre").textContent, "Text", button));
}
one("[data-copy-link]")?.addEventListener("click", (event) => copyLink(event.currentTarget));
one("[data-print]")?.addEventListener("click", () => { menu.open = false; print(); });

const menu = one("details.menu");
document.addEventListener("click", (event) => { if (menu && !menu.contains(event.target)) menu.open = false; });
menu?.addEventListener("keydown", (event) => {
  if (event.key === "Escape") { menu.open = false; menu.querySelector("summary").focus(); }
});

function zoom(by) {
  const choices = all(".time .zoom input");
  const place = choices.findIndex((each) => each.checked) + by;
  if (choices[place]) choices[place].click();
}

Object.assign(keys, {
  "/": ["find in this rollout; Enter and Shift+Enter go to the next and previous match", () => { field?.focus(); field?.select(); }],
  "]": ["next and previous tool call", () => step(".call", 1)],
  "[": ["next and previous tool call", () => step(".call", -1)],
  o: ["fold or unfold all", () => foldButton && !foldButton.hidden && foldAll()],
  r: ["this message raw or drawn", rawHere],
  R: ["all messages raw or drawn", rawAll],
  "+": ["zoom of the waterfall", () => zoom(1)],
  "-": ["zoom of the waterfall", () => zoom(-1)],
  y: ["copy a link to this rollout, or to the message", copyLink],
  a: ["actions: download, copy, print", () => { menu.open = !menu.open; menu.querySelector("summary").focus(); }],
});
delete keys.Enter;
}
