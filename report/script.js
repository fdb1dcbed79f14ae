"use strict";
(() => {
  const root = document.documentElement;
  const themes = ["system", "light", "dark"];
  const button = document.querySelector(".theme");
  const show = (theme) => {
    if (theme === "system") delete root.dataset.theme;
    else root.dataset.theme = theme;
    button.textContent = "theme: " + theme;
  };
  let theme = "system";
  // Pages opened from a disk may have no storage.
  try { theme = localStorage.getItem("lockbench-theme") || theme; } catch { /* none */ }
  if (!themes.includes(theme)) theme = "system";
  button.hidden = false;
  button.addEventListener("click", () => {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    show(theme);
    try { localStorage.setItem("lockbench-theme", theme); } catch { /* none */ }
  });
  show(theme);

  const raw = (cell) => cell.dataset.v ?? cell.innerText.trim();
  const missing = (text) => text === "" || text === "–";
  const compare = (a, b) => {
    const x = Number(a), y = Number(b);
    return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b, "en", { numeric: true }) : x - y;
  };
  const sort = (th) => {
    const down = th.getAttribute("aria-sort") === "ascending";
    const column = th.cellIndex;
    const body = th.closest("table").tBodies[0];
    for (const other of th.parentNode.cells) other.removeAttribute("aria-sort");
    th.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = [...body.rows].map((row) => [raw(row.cells[column]), row]);
    // What is missing stays last, whichever way.
    rows.sort(([a], [b]) => missing(a) - missing(b) || (down ? compare(b, a) : compare(a, b)));
    body.append(...rows.map(([, row]) => row));
  };
  const quote = (text) => (/[",\r\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text);
  const csv = (table) => [...table.rows]
    .map((row) => [...row.cells]
      .map((cell) => (missing(raw(cell)) ? "" : quote(raw(cell)))).join(",") + "\r\n").join("");
  const download = (figure) => {
    const blob = new Blob([csv(figure.querySelector("table"))], { type: "text/csv;charset=utf-8" });
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = figure.dataset.name + ".csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };
  document.addEventListener("click", (event) => {
    const pressed = event.target.closest("button");
    if (pressed?.matches("th button")) sort(pressed.closest("th"));
    else if (pressed?.matches(".csv")) download(pressed.closest("figure"));
  });

  const reveal = () => {
    const target = location.hash ? document.getElementById(location.hash.slice(1)) : null;
    if (target?.matches("details")) { target.open = true; target.scrollIntoView(); }
  };
  addEventListener("hashchange", reveal);
  reveal();
  const cases = [...document.querySelectorAll("details.case")];
  const all = document.querySelector(".all");
  if (all) {
    all.hidden = false;
    all.addEventListener("click", () => {
      const open = cases.some((one) => !one.open);
      for (const one of cases) one.open = open;
    });
  }
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details")].filter((one) => !one.open);
    for (const one of closed) one.open = true;
  });
  addEventListener("afterprint", () => { for (const one of closed) one.open = false; });
  // The page scrolls over a drawing; with Ctrl the wheel zooms in it.
  addEventListener("wheel", (event) => {
    if (!event.ctrlKey && event.target.closest?.("svg.lanes")) event.stopImmediatePropagation();
  }, { capture: true, passive: true });
  root.dataset.ready = "yes";
})();
