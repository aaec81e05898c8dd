// Judging by key: e opens the form, 1 to 5 rate, g and x tag, Enter saves. Without this script it is an ordinary form.

{
const LOOK_MS = 3000;
const place = document.querySelector("[data-judge]");
const form = place?.querySelector("[data-form]");

if (form) {
  const panel = place.querySelector("[data-panel]");
  const error = place.querySelector("[data-error]");
  const status = place.querySelector("[data-status]");
  const tags = form.elements.tags;
  const list = document.getElementById("judge-known");
  const known = new Set([...list.options].map((option) => option.value));
  const words = () => tags.value.split(/[\s,]+/).filter(Boolean);
  const written = () => JSON.stringify([words(), form.elements.note.value.trim(), form.elements.rating.value]);
  let saved = written(); // as the server has it
  let queue = Promise.resolve();

  function offer() { // completes the last of several tags
    const before = tags.value.replace(/[^\s,]*$/, "");
    const there = new Set(words());
    list.replaceChildren(...[...known].filter((tag) => !there.has(tag)).map((tag) => new Option(tag, before + tag)));
  }

  function take(fresh, sent) { // the current values of the server; typed text stays
    place.querySelector("[data-said]").replaceWith(fresh.querySelector("[data-said]"));
    const next = fresh.querySelector("[data-form]");
    if (!next || next.elements.by.value !== form.elements.by.value) return;
    form.elements.token.value = next.elements.token.value;
    for (const option of fresh.querySelectorAll("#judge-known option")) known.add(option.value);
    offer();
    if (written() !== (sent ?? saved) || (!sent && form.contains(document.activeElement))) return;
    for (const name of ["tags", "note", "rating"]) form.elements[name].value = next.elements[name].value;
    place.querySelector("summary > span").replaceWith(fresh.querySelector("summary > span"));
    saved = written();
  }

  const parsed = async (answer) => new DOMParser().parseFromString(await answer.text(), "text/html");

  function complain(text) {
    error.textContent = text;
    error.hidden = !text;
    if (text) { panel.open = true; status.textContent = ""; }
  }

  async function save() {
    const body = new URLSearchParams(new FormData(form));
    const sent = written();
    body.set("part", "1");
    status.textContent = "saving";
    try {
      const answer = await fetch(form.action, { method: "POST", body });
      const page = await parsed(answer);
      const fresh = page.querySelector("[data-judge]");
      if (answer.ok && fresh) {
        complain("");
        if (written() !== sent) saved = sent;
        take(fresh, sent);
        if (written() === saved && !form.contains(document.activeElement)) panel.open = false;
        status.textContent = "saved";
      } else {
        const token = page.querySelector("[data-form] [name=token]");
        if (token) form.elements.token.value = token.value;
        const reason = page.querySelector("[data-error]") ?? page.querySelector("main p"); // of the form, or of a plain page
        complain(reason?.textContent || `not saved: ${answer.status}`);
      }
    } catch {
      complain("not saved: the viewer does not answer; what you wrote stays here");
    }
  }

  function saving() {
    queue = queue.then(save); // one after the other, so that the last change is the last line
  }

  function edit() {
    panel.open = true;
    tags.focus();
    tags.value = words().map((tag) => `${tag}, `).join("");
    offer();
  }

  function rate(value) {
    form.elements.rating.value = value;
    saving();
  }

  function mark(tag, opposite) {
    const now = words().filter((each) => each !== opposite);
    tags.value = (now.includes(tag) ? now.filter((each) => each !== tag) : [...now, tag]).join(", ");
    saving();
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    document.activeElement.blur();
    saving();
  });
  form.elements.note.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); form.requestSubmit(); }
  });
  tags.addEventListener("input", offer);
  addEventListener("beforeunload", (event) => { if (written() !== saved) event.preventDefault(); });
  place.querySelector("[data-hint]").hidden = false;
  offer();

  const keys = ((window.velo ??= {}).keys ??= {});
  keys.e = ["judge: tags and a note; Enter saves, Shift+Enter is a new line", edit];
  for (const value of "12345") keys[value] = ["rate from 1 to 5; 0 takes it back", () => rate(value)];
  keys[0] = ["rate from 1 to 5; 0 takes it back", () => rate("0")];
  keys.g = ["tag as good or as bad", () => mark("good", "bad")];
  keys.x = ["tag as good or as bad", () => mark("bad", "good")];

  async function look() { // for judgements of other people
    if (document.hidden) return;
    try {
      const answer = await fetch(place.dataset.judge);
      const fresh = answer.ok && (await parsed(answer)).querySelector("[data-judge]");
      if (fresh) take(fresh);
    } catch {
      // the viewer has ended, or is restarting
    }
  }
  const looking = async () => { await (queue = queue.then(look)); setTimeout(looking, LOOK_MS); };
  setTimeout(looking, LOOK_MS);
}
}
