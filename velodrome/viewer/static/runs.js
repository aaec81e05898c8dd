// The list of runs: the ticked runs are part of the address, so that they stay when the list is updated.

const form = document.querySelector("form.runs");
const ticked = () => new FormData(form).getAll("run");

form.addEventListener("change", (event) => {
  if (event.target.name !== "run") return;
  const address = new URL(location.href);
  address.searchParams.delete("run");
  for (const slug of ticked()) address.searchParams.append("run", slug);
  history.replaceState(null, "", address);
  document.querySelector("[data-picked]").textContent = ticked().length > 1 ? ` ${ticked().length}` : "";
});

const keys = ((window.velo ??= {}).keys ??= {});
keys.x = ["pick the run, or drop it", () => {
  const row = document.activeElement?.closest("[data-row]") ?? document.querySelector("[data-row].here");
  row?.querySelector("input[name=run]")?.click();
}];
keys.c = ["compare the runs that are picked", () => document.querySelector("[data-compare]").click()];
