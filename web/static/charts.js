// Draws over the charts that the server drew, with plotly. Pages are complete without it.
(() => {
  "use strict";
  const { Plotly } = window;
  if (!Plotly) return;

  const dark = matchMedia("(prefers-color-scheme: dark)");
  const touch = matchMedia("(pointer: coarse)");
  const drawn = new WeakMap(); // the canvas of a plot -> what is drawn on it
  const configured = new WeakMap(); // the canvas of a plot -> its settings

  const colour = (name) =>
    getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

  function axis(given) {
    return {
      ...given,
      gridcolor: colour("line"),
      linecolor: colour("line"),
      zeroline: false,
      automargin: true,
      fixedrange: touch.matches, // a finger scrolls the page
    };
  }

  // What a series is drawn in: a colour of the style sheet by its name, or by its number.
  function painted(trace) {
    const tone = colour(trace.meta.tone || `s${trace.meta.style}`);
    if (trace.type === "bar") {
      // Upon the bar, whose own colour would hide it.
      const error = trace.error_x && { ...trace.error_x, color: colour("ink"), thickness: 1.3, width: 3 };
      return { ...trace, marker: { color: tone }, error_x: error };
    }
    if (trace.mode === "text") return { ...trace, textfont: { color: colour("ink") } };
    return {
      ...trace,
      line: { width: 1.8, ...trace.line, color: tone },
      marker: { size: 8, ...trace.marker, color: tone, line: { color: tone, width: 2 } },
      error_y: trace.error_y && { ...trace.error_y, color: tone, thickness: 1.3, width: 4 },
    };
  }

  const SHADES = { timed: "accent", warmup: "busy", profiled: "quiet" };

  function shade(given) {
    return {
      type: "rect", xref: "x", yref: "paper", layer: "below",
      x0: given.x0, x1: given.x1, y0: 0, y1: 1,
      fillcolor: colour(SHADES[given.kind]), opacity: 0.11, line: { width: 0 },
    };
  }

  // A line from the bottom to the top, with words along it.
  function event(given) {
    return {
      type: "line", xref: "x", yref: "paper", layer: "below", x0: given.x, x1: given.x, y0: 0, y1: 1,
      line: { color: colour("quiet"), width: 1, dash: "dot" },
    };
  }

  function words(given) {
    return {
      text: given.text, textangle: -90, showarrow: false, font: { size: 11, color: colour("ink") },
      xref: "x", x: given.x, xanchor: "right", yref: "paper", y: 1, yanchor: "top",
    };
  }

  // A field of a heat map; the server names its colour.
  function field({ tone, ...given }) {
    return { ...given, fillcolor: colour(tone), line: { color: colour("surface"), width: 2 } };
  }

  function figure(given) {
    const data = given.data.map(painted);
    const layout = {
      showlegend: given.layout.showlegend,
      xaxis: axis(given.layout.xaxis),
      yaxis: axis(given.layout.yaxis),
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: colour("ground"),
      font: { family: "system-ui, sans-serif", size: 12, color: colour("quiet") },
      hoverlabel: { bgcolor: colour("surface"), font: { color: colour("ink") }, align: "left" },
      // Below the axis' title, however many lines it takes.
      legend: { orientation: "h", yref: "container", y: 0, yanchor: "bottom" },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("quiet"), activecolor: colour("accent") },
      margin: { l: 56, r: 12, t: touch.matches ? 32 : 12, b: 44 }, // a finger sees the buttons always
      height: given.layout.height ?? 330 + (given.layout.showlegend ? 10 * data.length : 0),
      hovermode: "closest",
      dragmode: touch.matches ? false : "zoom",
      uirevision: given.layout.uirevision ?? "kept", // new values leave a zoom as it is
      bargap: 0.08,
      barmode: "overlay",
    };
    if (given.shades) layout.shapes = given.shades.map(shade);
    if (given.events) {
      layout.shapes = given.events.map(event);
      layout.annotations = given.events.map(words);
    }
    if (given.layout.shapes) layout.shapes = given.layout.shapes.map(field);
    if (given.layout.yaxis2) {
      layout.yaxis2 = { ...axis(given.layout.yaxis2), showgrid: false };
      layout.margin.r = 56;
    }
    return { data, layout };
  }

  function saving(format, title) {
    return {
      name: `save ${format}`,
      title: `Save as ${format.toUpperCase()}`,
      icon: format === "png" ? Plotly.Icons.camera : Plotly.Icons.disk,
      click: (plot) => Plotly.downloadImage(plot, { format, filename: title, width: 900, height: 500 }),
    };
  }

  // One for all drawings on a canvas: with another, plotly draws from the start and forgets the zoom.
  function settings(canvas, title) {
    if (!configured.has(canvas)) {
      configured.set(canvas, {
        responsive: true,
        displaylogo: false,
        scrollZoom: false,
        modeBarButtons: [["resetScale2d", saving("png", title), saving("svg", title)]],
      });
    }
    return configured.get(canvas);
  }

  async function draw(plot) {
    const source = plot.querySelector(".source");
    const canvas = plot.querySelector(".canvas");
    const text = source?.querySelector('script[type="application/json"]')?.textContent;
    if (!text || !canvas) return;
    const key = `${dark.matches} ${touch.matches} ${text}`;
    if (drawn.get(canvas) === key) return;
    drawn.set(canvas, key);
    const given = JSON.parse(text);
    const title = plot.querySelector("figcaption")?.textContent.trim() || "chart";
    const { data, layout } = figure(given);
    canvas.hidden = false;
    canvas.setAttribute("role", "group");
    canvas.setAttribute("aria-label", `${title}: ${given.summary}`);
    try {
      await Plotly.react(canvas, data, layout, settings(canvas, title));
      plot.classList.add("is-drawn");
      // Drawings within buttons that have names, and what plotly measures texts with.
      for (const drawing of document.querySelectorAll(".modebar svg, #js-plotly-tester")) drawing.setAttribute("aria-hidden", "true");
    } catch (error) {
      // What the server drew stays.
      canvas.hidden = true;
      plot.classList.remove("is-drawn");
      console.warn(error);
    }
  }

  let isDue = false;
  function drawAll() {
    if (isDue) return;
    isDue = true;
    requestAnimationFrame(() => {
      isDue = false;
      for (const plot of document.querySelectorAll("[data-plot]")) draw(plot);
    });
  }

  drawAll();
  dark.addEventListener("change", drawAll);
  touch.addEventListener("change", drawAll);
  // live.js puts new values into the sources, or whole new plots into the page.
  new MutationObserver((changes) => {
    if (changes.some((change) => !change.target.closest?.(".canvas"))) drawAll();
  }).observe(document.getElementById("main"), { childList: true, subtree: true });
})();
