// Tables that sort and filter, charts that say their values. Works on the page alone: no network, no
// storage, no library. Everything it adds is a button or a field, so the keyboard reaches all of it.
(() => {
  "use strict";
  const words = JSON.parse(document.getElementById("words").textContent);
  const make = (tag, attributes, text) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text) element.textContent = text;
    return element;
  };

  // --- values in cells -------------------------------------------------------------------------
  const scale = { n: 1e-9, "µ": 1e-6, m: 1e-3, k: 1e3, M: 1e6, G: 1e9, T: 1e12 };
  const units = { h: 3600, KiB: 1024, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40 };
  const number = (text) => {
    const found = /^[^\d−-]*([−-]?)([\d,]+(?:\.\d+)?)(?:\s*([^\s\d]+))?/.exec(text);
    if (!found) return null;
    const value = parseFloat(found[2].replaceAll(",", "")) * (found[1] ? -1 : 1);
    const unit = found[3] || "";
    if (unit in units) return value * units[unit];
    const prefix = /^([nµmkMGT])(?:s|B|bit)/.exec(unit);
    return prefix ? value * scale[prefix[1]] : value;
  };
  const shown = (row, column) => (row.cells[column]?.textContent ?? "").trim();
  const compare = (a, b, numeric) => {
    if (!numeric) return a.localeCompare(b, document.documentElement.lang, { numeric: true });
    const [x, y] = [number(a), number(b)];
    if (x === null || y === null) return (x === null) - (y === null); // what is absent comes last
    return x - y;
  };

  // --- sorting ---------------------------------------------------------------------------------
  const sortable = (table) => {
    const body = table.tBodies[0];
    const heads = [...table.tHead.rows[0].cells];
    const given = [...body.rows];
    heads.forEach((head, column) => {
      const name = head.textContent.trim();
      if (!name) return;
      const button = make("button", { type: "button", class: "sort", title: words.sort }, name);
      head.textContent = "";
      head.append(button);
      button.addEventListener("click", () => {
        const now = head.getAttribute("aria-sort");
        const next = { ascending: "descending", descending: null }[now] ?? (now ? null : "ascending");
        for (const other of heads) other.removeAttribute("aria-sort");
        let rows = given;
        if (next) {
          head.setAttribute("aria-sort", next);
          const values = given.map((row) => shown(row, column)).filter((v) => v && v !== "–");
          const numeric = values.length > 0 && values.every((v) => number(v) !== null)
            && head.classList.contains("num");
          const sign = next === "ascending" ? 1 : -1;
          rows = [...given].sort((r, s) => {
            const [a, b] = [shown(r, column), shown(s, column)];
            const absent = (v) => v === "" || v === "–";
            if (absent(a) || absent(b)) return absent(a) - absent(b);
            return sign * compare(a, b, numeric);
          });
        }
        body.append(...rows);
      });
    });
  };

  // --- filtering -------------------------------------------------------------------------------
  const filterable = (table, parts) => {
    const bar = make("div", { class: "filter" });
    const field = make("input", { type: "search", placeholder: words.filter,
      "aria-label": words.filter, autocomplete: "off", spellcheck: "false" });
    const said = make("output", { "aria-live": "polite" });
    bar.append(field, said);
    table.before(bar);
    const texts = parts.map((part) => part.textContent.toLowerCase());
    const apply = () => {
      const wanted = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      let left = 0;
      parts.forEach((part, i) => {
        part.hidden = !wanted.every((word) => texts[i].includes(word));
        left += part.hidden ? 0 : 1;
      });
      said.textContent = wanted.length
        ? words.rows.replace("{n}", left).replace("{total}", parts.length) : "";
    };
    field.addEventListener("input", apply);
    field.addEventListener("keydown", (event) => {
      if (event.key === "Escape") { field.value = ""; apply(); }
    });
  };

  for (const table of document.querySelectorAll("table.data")) {
    if (!table.tHead || table.tBodies.length === 0) continue;
    const rows = [...table.tBodies].flatMap((body) => [...body.rows]);
    const grouped = table.tBodies.length > 1;
    if (!grouped && rows.length > 1) sortable(table);
    const parts = grouped ? [...table.tBodies] : rows;
    if (parts.length >= 8) filterable(table, parts);
  }

  // --- values in charts ------------------------------------------------------------------------
  const tip = make("div", { class: "tip", role: "status", "aria-live": "polite" });
  tip.hidden = true;
  document.body.append(tip);
  const hide = () => {
    tip.hidden = true;
    document.querySelector(".pointed")?.classList.remove("pointed");
  };
  const point = (mark, x, y) => {
    hide();
    mark.classList.add("pointed");
    tip.textContent = mark.dataset.said;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const right = document.documentElement.clientWidth - box.width - 8;
    tip.style.left = `${Math.max(8, Math.min(x + 12, right)) + scrollX}px`;
    tip.style.top = `${(y - box.height - 10 < 0 ? y + 14 : y - box.height - 10) + scrollY}px`;
  };
  for (const chart of document.querySelectorAll("svg.chart")) {
    const marks = [...chart.querySelectorAll("title")].map((title) => {
      const mark = title.parentElement;
      mark.dataset.said = title.textContent;
      title.remove(); // or the browser shows it a second time
      return mark;
    });
    if (!marks.length) continue;
    chart.setAttribute("tabindex", "0");
    chart.setAttribute("aria-description", words.arrows);
    let at = -1;
    chart.addEventListener("pointermove", (event) => {
      const mark = event.target.closest("[data-said]");
      if (mark) point(mark, event.clientX, event.clientY); else hide();
    });
    chart.addEventListener("pointerleave", hide);
    chart.addEventListener("blur", hide);
    chart.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (event.key === "Escape") hide();
      if (!step) return;
      event.preventDefault();
      at = (at + step + marks.length) % marks.length;
      const box = marks[at].getBoundingClientRect();
      point(marks[at], box.left + box.width / 2, box.top);
    });
  }
  document.documentElement.classList.add("scripted");
})();
