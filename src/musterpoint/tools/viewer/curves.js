"use strict";
// A metric's values over time, a line for each host: nothing is told by colour alone, so lines have dashes of their own.
const CURVES = (() => {
  const DASHES = ["", "6 3", "2 3", "8 3 2 3", "12 4", "1 4"], COLOURS = ["--step", "--stop", "--network", "--process", "--failure", "--note"];
  const LEFT = 56, RIGHT = 14, TOP = 12, BOTTOM = 24;
  function element(tag, attributes, words) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const name in attributes) made.setAttribute(name, attributes[name]);
    if (words !== undefined) made.textContent = words;
    return made;
  }
  function ticks(low, high, most) {
    const rough = (high - low) / Math.max(1, most), power = 10 ** Math.floor(Math.log10(rough));
    const every = [1, 2, 5, 10].map(each => each * power).find(each => each >= rough), found = [];
    for (let at = Math.ceil(low / every - 1e-9) * every; at <= high + every * 1e-9; at += every) found.push(+at.toPrecision(12));
    return found;
  }
  const shown = value => Math.abs(value) >= 1e5 || value && Math.abs(value) < 1e-3 ? value.toExponential(2) : String(+value.toPrecision(5));
  function bounds(values) {
    let low = Infinity, high = -Infinity;
    for (const value of values) { low = Math.min(low, value); high = Math.max(high, value); }
    if (low === high) { const room = Math.abs(low) / 10 || 1; low -= room; high += room; }
    return [low, high];
  }
  function line(host, number) {
    return {stroke: `var(${COLOURS[number % COLOURS.length]})`, "stroke-dasharray": DASHES[Math.floor(number / COLOURS.length + number) % DASHES.length],
      fill: "none", "stroke-width": 1.6};
  }
  // curve: {name, last, lines: [[host, [[at, value], …], count], …]}
  function draw(svg, curve, said) {
    const width = svg.clientWidth || 420, height = 170;
    svg.setAttribute("height", height);
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const all = curve.lines.flatMap(each => each[1]), [from, to] = bounds(all.map(point => point[0])), [low, high] = bounds(all.map(point => point[1]));
    const x = at => LEFT + (at - from) / (to - from) * (width - LEFT - RIGHT), y = value => height - BOTTOM - (value - low) / (high - low) * (height - TOP - BOTTOM);
    const parts = document.createDocumentFragment();
    for (const value of ticks(low, high, 4)) {
      parts.append(element("line", {x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value), stroke: "var(--line)"}));
      parts.append(element("text", {x: LEFT - 6, y: y(value) + 4, class: "tick", "text-anchor": "end"}, shown(value)));
    }
    for (const at of ticks(from, to, Math.max(2, width / 110))) {
      const label = `${shown(at)} s`, half = label.length * 3.4;  // so that the last one isn't cut off
      parts.append(element("text", {x: Math.min(x(at), width - half), y: height - 8, class: "tick", "text-anchor": "middle"}, label));
    }
    curve.lines.forEach(([host, points], number) => {
      const path = points.map(([at, value]) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
      if (points.length > 1) parts.append(element("polyline", {points: path, class: "curve", ...line(host, number)}));
      else parts.append(element("circle", {cx: x(points[0][0]), cy: y(points[0][1]), r: 3, class: "curve", fill: line(host, number).stroke}));
    });
    const mark = element("circle", {r: 4, fill: "none", stroke: "var(--ink)", "stroke-width": 1.5, visibility: "hidden"});
    parts.append(mark);
    svg.replaceChildren(parts);
    svg.onpointermove = event => {
      const box = svg.getBoundingClientRect(), px = event.clientX - box.left, py = event.clientY - box.top;
      let best = Infinity, found = null;
      for (const [host, points] of curve.lines) for (const [at, value] of points) {
        const far = (x(at) - px) ** 2 + (y(value) - py) ** 2 / 9;
        if (far < best) { best = far; found = [host, at, value]; }
      }
      mark.setAttribute("visibility", "visible");
      mark.setAttribute("cx", x(found[1]));
      mark.setAttribute("cy", y(found[2]));
      said(`${found[0]}: ${shown(found[2])} at ${shown(+found[1].toFixed(3))} s`);
    };
    svg.onpointerleave = () => { mark.setAttribute("visibility", "hidden"); said(""); };
  }
  // Fills a place with a figure for each curve; figures that are there are drawn again.
  function show(place, curves) {
    for (const curve of curves) {
      let figure = [...place.children].find(each => each.dataset.name === curve.name);
      if (!figure) {
        figure = document.createElement("figure");
        figure.dataset.name = curve.name;
        const caption = document.createElement("figcaption"), words = document.createElement("span"), legend = document.createElement("div");
        const name = document.createElement("b");
        legend.className = "legend";
        words.className = "when";
        name.textContent = curve.name;
        caption.append(name, " ", words);
        figure.append(caption, element("svg", {role: "img"}), legend);
        place.append(figure);
      }
      const svg = figure.querySelector("svg"), words = figure.querySelector(".when"), legend = figure.lastChild;
      const count = curve.lines.reduce((sum, each) => sum + each[2], 0), plain = `last ${shown(curve.last)}, ${count} value${count === 1 ? "" : "s"}`;
      words.textContent = plain;
      svg.setAttribute("aria-label", `${curve.name} over time: ${plain}`);
      draw(svg, curve, text => { words.textContent = text || plain; });
      legend.replaceChildren(...(curve.lines.length > 1 ? curve.lines : []).map(([host], number) => {
        const item = document.createElement("span"), frame = element("svg", {width: 22, height: 14});
        frame.append(element("line", {x1: 0, x2: 22, y1: 7, y2: 7, ...line(host, number)}));
        item.append(frame, host);
        return item;
      }));
    }
  }
  return {show};
})();
