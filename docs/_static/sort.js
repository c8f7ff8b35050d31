// A click on a column's head sorts a table of the class `sortable`; another click turns the order.
document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const numbers = head.classList.contains("text-right");
        const key = (row) => row.cells[column].textContent.trim().replace("−", "-");
        const order = (a, b) => {
          if (!numbers) return key(a).localeCompare(key(b), undefined, { numeric: true });
          const [x, y] = [parseFloat(key(a)), parseFloat(key(b))];
          if (isNaN(x) || isNaN(y)) return (isNaN(x) - isNaN(y)) * (down ? -1 : 1); // rows without a number stay last
          return x - y;
        };
        const rows = [...table.tBodies[0].rows].sort(order);
        table.tBodies[0].append(...(down ? rows.reverse() : rows));
      });
    });
  }
});
