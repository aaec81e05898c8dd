// Plays the pictures of an episode. Without this script the page has a table of the steps.

function player(root) {
  const film = JSON.parse(root.dataset.film);
  const part = (name) => root.querySelector(`[data-${name}]`);
  const slider = part("slider");
  const agents = [...root.querySelectorAll("[data-agent]")];
  const last = film.steps - 1;
  let now = 0;
  let timer = null;

  const numberText = (value) => String(Number(value.toPrecision(4))).replace("-", "−");
  const actionText = (action) => Array.isArray(action) ? action.map(numberText).join(", ") : film.names[action] ?? String(action);

  // The sum of rewards of every agent, and of their mean, after each step.
  const mean = [];
  const own = [];
  (film.rewards ?? []).forEach((row, step) => {
    mean.push((mean[step - 1] ?? 0) + film.means[step]);
    own.push(row.map((value, agent) => (own[step - 1]?.[agent] ?? 0) + value));
  });

  let drawn = { step: -1, width: 1, cells: [] };

  function picture(step) {
    let at = drawn.step;
    if (step < at || at < 0) {
      at = step;
      while (Array.isArray(film.frames[at][0])) at -= 1;
      at -= 1;
    }
    while (at < step) {
      at += 1;
      const [what, text] = film.frames[at];
      const letters = [...text]; // by character: some are two units of a JavaScript string
      if (Array.isArray(what)) what.forEach((cell, place) => { drawn.cells[cell] = letters[place]; });
      else drawn = { width: what, cells: letters };
    }
    drawn.step = step;
    return drawn;
  }

  const SCREEN = 960; // pixels of the longer side, roughly
  const colours = new Map();
  const marks = new Map();
  (film.colours ?? []).forEach((colour, place) => {
    colours.set(film.letters[place], colour);
    if (film.marks[place]) marks.set(film.letters[place], film.marks[place]);
  });

  function draw(step) {
    if (film.images) {
      const image = part("image");
      const source = film.images[Math.min(Math.floor(step / film.every), film.images.length - 1)];
      if (image.src !== source) image.src = source;
      return;
    }
    const canvas = part("screen");
    if (!canvas) return;
    const { width, cells } = picture(step);
    const height = cells.length / width;
    const side = Math.max(1, Math.floor(SCREEN / Math.max(width, height)));
    if (canvas.width !== width * side || canvas.height !== height * side) {
      canvas.width = width * side;
      canvas.height = height * side;
    }
    const pen = canvas.getContext("2d");
    pen.clearRect(0, 0, canvas.width, canvas.height);
    pen.font = `600 ${Math.round(side * 0.75)}px system-ui, sans-serif`;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    cells.forEach((letter, place) => {
      const colour = colours.get(letter);
      if (!colour) return;
      const x = (place % width) * side;
      const y = Math.floor(place / width) * side;
      pen.fillStyle = colour;
      pen.fillRect(x, y, side, side);
      const mark = marks.get(letter);
      if (mark && side >= 10) {
        pen.fillStyle = ink(colour);
        pen.fillText(mark, x + side / 2, y + side / 2);
      }
    });
  }

  // Black or white, so that the text is readable on the colour.
  function ink(colour) {
    const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
    return red * 0.299 + green * 0.587 + blue * 0.114 > 140 ? "#000000" : "#ffffff";
  }

  function fill(line, agent) {
    const write = (name, text) => { line.querySelector(`[data-${name}]`).textContent = text; };
    const acted = film.actions?.[now][agent];
    if (film.actions) write("action", actionText(acted));
    if (film.taught) {
      const taught = film.taught[now][agent];
      const cell = line.querySelector("[data-teacher]");
      const same = taught === acted;
      const word = document.createElement("span");
      word.className = same ? "soft" : "differs";
      word.textContent = same ? "the same" : actionText(taught);
      cell.replaceChildren(word);
    }
    if (film.rewards) {
      write("paid", numberText(film.rewards[now][agent]));
      write("sum", numberText(own[now][agent]));
    }
  }

  function show(step) {
    now = Math.max(0, Math.min(step, last));
    slider.value = now + 1;
    const where = `${(now + 1).toLocaleString("en")} of ${film.of.toLocaleString("en")}`;
    part("where").textContent = where;
    draw(now);
    agents.forEach(fill);
    if (film.rewards) {
      part("reward").textContent = numberText(film.means[now]);
      part("return").textContent = numberText(mean[now]);
    }
    const acts = agents.length <= 4 && film.actions ? film.actions[now].map((a, k) => `, agent ${k} ${actionText(a)}`) : [];
    slider.setAttribute("aria-valuetext", where + acts.join(""));
  }

  const playing = part("play");
  function pause() {
    clearTimeout(timer);
    timer = null;
    playing.textContent = "Play";
  }

  function tick() {
    if (now >= last) { pause(); return; }
    show(now + 1);
    timer = setTimeout(tick, 1000 / part("speed").value);
  }

  playing.addEventListener("click", () => {
    if (timer !== null) { pause(); return; }
    if (now >= last) show(0);
    playing.textContent = "Pause";
    timer = setTimeout(tick, 1000 / part("speed").value);
  });
  const jump = (step) => { pause(); show(step); };
  part("back").addEventListener("click", () => jump(now - 1));
  part("on").addEventListener("click", () => jump(now + 1));
  slider.addEventListener("input", () => jump(slider.valueAsNumber - 1));
  root.hidden = false;
  show(slider.valueAsNumber - 1); // the browser may have restored its place
}

for (const each of document.querySelectorAll("[data-film]")) player(each);
