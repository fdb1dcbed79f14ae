"use strict";
(() => {
  const form = document.querySelector(".filters");
  if (!form) return;
  const rows = [...document.querySelectorAll(".cells tbody tr")];
  const show = () => {
    const { family, language, verdict } = Object.fromEntries(new FormData(form));
    let shown = 0;
    for (const row of rows) {
      let broke = false;
      for (const cell of row.querySelectorAll("td")) {
        const has = !verdict || (cell.dataset.broke || "").split(" ").includes(verdict);
        cell.classList.toggle("faint", !has);
        broke ||= has;
      }
      row.hidden = !broke || (family && row.dataset.family !== family) ||
        (language && row.dataset.language !== language);
      shown += !row.hidden;
    }
    form.querySelector("output").textContent = `${shown} of ${rows.length} rows`;
  };
  form.hidden = false;
  form.addEventListener("change", show);
  form.addEventListener("reset", () => setTimeout(show));
  form.addEventListener("submit", (event) => event.preventDefault());
  show();
})();
