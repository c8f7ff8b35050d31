// Draws the diagrams of a page in the colours of the page, and anew when those change.
(() => {
  const figures = [...document.querySelectorAll("figure.diagram > pre.mermaid")].map((node) => [node, node.textContent]);
  const system = window.matchMedia("(prefers-color-scheme: dark)");

  function isDark() {
    const chosen = document.body.dataset.theme;
    return chosen === "dark" || (chosen !== "light" && system.matches);
  }

  let drawn;
  async function draw() {
    const theme = isDark() ? "dark" : "neutral";
    if (theme === drawn) return;
    drawn = theme;
    mermaid.initialize({ startOnLoad: false, securityLevel: "strict", theme, fontFamily: getComputedStyle(document.body).fontFamily });
    for (const [number, [node, text]] of figures.entries()) {
      const { svg } = await mermaid.render(`diagram-${number}`, text);
      node.innerHTML = svg;
      node.dataset.drawn = theme;
    }
  }

  draw();
  system.addEventListener("change", draw);
  new MutationObserver(draw).observe(document.body, { attributeFilter: ["data-theme"] });
})();
