"use strict";
// A metric's values over time, a line for each host: nothing is told by colour alone, so lines have dashes of their own.
const CURVES = (() => {
  const DASHES = ["", "6 3", "2 3", "8 3 2 3"], COLOURS = ["--step", "--stop", "--network", "--process", "--failure"];
  const WIDTH = 420, HEIGHT = 150, LEFT = 58, BOTTOM = 18;
  function element(tag, attributes, ...children) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const name in attributes) made.setAttribute(name, attributes[name]);
    made.append(...children);
    return made;
  }
  const shown = value => String(+value.toPrecision(5));
  function bounds(values) {
    const sorted = values.toSorted((a, b) => a - b), low = sorted[0], high = sorted[sorted.length - 1];
    return low < high ? [low, high] : [low - 1, high + 1];
  }
  function stroke(number) {
    const dashes = DASHES[(number + Math.floor(number / COLOURS.length)) % DASHES.length];
    return {stroke: `var(${COLOURS[number % COLOURS.length]})`, "stroke-dasharray": dashes, "stroke-width": 1.6, fill: "none"};
  }
  // curve: [name, [[host, [[at, value], …], count], …], last]
  function figure([name, lines, last]) {
    const points = lines.flatMap(([, own]) => own);
    const [from, to] = bounds(points.map(each => each[0])), [low, high] = bounds(points.map(each => each[1]));
    const x = at => LEFT + (at - from) / (to - from) * (WIDTH - LEFT - 8);
    const y = value => HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - BOTTOM - 10);
    const count = lines.reduce((sum, each) => sum + each[2], 0);
    const plain = `last ${shown(last)}, ${count} value${count === 1 ? "" : "s"}`;
    const svg = element("svg", {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${name} over time: ${plain}`});
    for (const each of [low, high]) svg.append(element("text", {x: LEFT - 6, y: y(each) + 4, "text-anchor": "end"}, shown(each)));
    for (const [at, anchor] of [[from, "start"], [to, "end"]])
      svg.append(element("text", {x: x(at), y: HEIGHT - 3, "text-anchor": anchor}, `${shown(at)} s`));
    lines.forEach(([, own], number) => svg.append(element("polyline", {class: "curve", ...stroke(number), "stroke-linecap": "round",
      points: [...own, own[own.length - 1]].map(([at, value]) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join(" ")})));
    const [made, caption, legend] = ["figure", "figcaption", "div"].map(tag => document.createElement(tag));
    caption.append(Object.assign(document.createElement("b"), {textContent: name}), ` ${plain}`);
    legend.className = "legend";
    lines.forEach(([host], number) => {
      const item = document.createElement("span");
      const sample = element("svg", {width: 22, height: 8});
      sample.style.width = "22px";
      sample.append(element("line", {x2: 22, y1: 4, y2: 4, ...stroke(number)}));
      item.append(sample, " ", host);
      if (lines.length > 1) legend.append(item);
    });
    made.append(caption, svg, legend);
    return made;
  }
  return {show: (place, curves) => place.replaceChildren(...curves.map(figure))};
})();
