(() => {
  const $ = id => document.getElementById(id), jobs = new Map(), items = new Map(), MOST_LOG = 400000, MOST_TALL = 1600;
  let chosen = decodeURIComponent(location.hash.slice(1)), news = null, host = "", lines = [], length = 0, reported = "";

  function made(tag, words, style) {
    const element = document.createElement(tag);
    if (words !== undefined) element.textContent = words;
    if (style) element.className = style;
    return element;
  }
  const clock = seconds => new Date(seconds * 1000).toLocaleTimeString();
  const took = seconds => seconds < 99.5 ? `${+seconds.toPrecision(2)} s` : `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;

  const newest = () => [...jobs.values()].sort((a, b) => b.created - a.created);
  function list() {
    const words = $("filter").value.toLowerCase(), found = newest().filter(job => `${job.name} ${job.status} ${job.secondary}`.toLowerCase().includes(words));
    $("none").hidden = jobs.size > 0;
    // what is there stays, so that a click that begins on it ends on it
    const wanted = found.map(job => {
      const item = items.get(job.name) || entry(job.name), button = item.firstChild;
      const words = [job.secondary || job.status, job.status, `${job.size} · ${clock(job.created)}`];
      if (item.words !== words.join()) {
        item.words = words.join();
        button.replaceChildren(made("b", job.name), made("span", words[0], words[1]), made("span", ` · ${words[2]}`, "when"));
      }
      button.setAttribute("aria-current", job.name === chosen);
      return item;
    });
    if (wanted.length !== $("jobs").children.length || wanted.some((item, at) => $("jobs").children[at] !== item)) $("jobs").replaceChildren(...wanted);
  }
  function entry(name) {
    const item = made("li"), button = made("button");
    button.onclick = () => { location.hash = encodeURIComponent(name); };
    item.append(button);
    items.set(name, item);
    return item;
  }
  function details(job) {
    $("job").hidden = false;
    $("name").textContent = job.name;
    $("status").textContent = job.secondary || job.status;
    $("status").className = `badge ${job.status}`;
    $("about").textContent = job.about;
    $("stop").disabled = !job.stoppable;
    $("interrupt").disabled = !(job.stoppable && job.spot);
    $("interrupt").title = job.spot ? "takes the spot instances away" : "only for spot jobs";
    $("reason").hidden = !job.reason;
    $("reason").textContent = job.reason;
    $("steps").replaceChildren(...job.transitions.map(step => {
      const item = made("li", step.Status), end = step.EndTime > step.StartTime ? `, ${took(step.EndTime - step.StartTime)}` : "";
      item.append(made("small", clock(step.StartTime) + end));
      item.title = step.StatusMessage;
      return item;
    }));
    $("timeline").hidden = !job.report;
    const report = job.report ? `/_muster/page/report?job=${encodeURIComponent(job.name)}` : "";
    if (report && reported !== `${report} ${job.transitions.length}`) {
      reported = `${report} ${job.transitions.length}`;
      $("report").src = report;
    }
  }
  function tabs() {
    const names = [...new Set(lines.map(each => each[0]))].sort((a, b) => a.localeCompare(b, "en", {numeric: true}));
    if ($("hosts").words === [host, ...names].join()) return names.length;
    $("hosts").words = [host, ...names].join();
    $("hosts").replaceChildren(...(names.length > 1 ? ["", ...names] : []).map(name => {
      const button = made("button", name || "all hosts");
      button.setAttribute("aria-pressed", name === host);
      button.onclick = () => { host = name; tabs(); log(); };
      return button;
    }));
    return names.length;
  }
  function shown(each, several) {
    const part = document.createDocumentFragment();
    if (several && !host) part.append(made("i", `${each[0]} | `));
    part.append(each[1] + "\n");
    return part;
  }
  function log() {
    const several = tabs() > 1;
    $("log").replaceChildren(...lines.filter(each => !host || each[0] === host).map(each => shown(each, several)));
    if ($("follow").checked) $("log").scrollTop = $("log").scrollHeight;
  }
  const rests = new Map();
  function wrote({host: from, text}) {
    const parts = ((rests.get(from) || "") + text).split("\n");
    rests.set(from, parts.pop());
    const came = parts.map(part => [from, part.slice(part.replace(/\r+$/, "").lastIndexOf("\r") + 1).replace(/\x1b\[[0-9;]*[A-Za-z]/g, "").trimEnd()]);
    lines.push(...came);
    for (const each of came) length += each[1].length + 1;
    while (length > MOST_LOG && lines.length > 1) length -= lines.shift()[1].length + 1;
    requestAnimationFrame(log);
  }
  function listen() {
    if (news) news.close();
    lines = []; length = 0; rests.clear(); host = ""; reported = "";
    $("curves").replaceChildren(); $("metrics").hidden = true; $("job").hidden = true; $("problem").hidden = true; $("timeline").hidden = true;
    log();
    news = new EventSource(`/_muster/page/news?job=${encodeURIComponent(chosen)}`);
    news.onopen = () => { $("state").textContent = "live"; };
    // a new connection begins with everything again
    news.onerror = () => { $("state").textContent = "the server doesn't answer; trying again"; lines = []; length = 0; rests.clear(); };
    const on = (kind, action) => news.addEventListener(kind, event => action(JSON.parse(event.data)));
    on("jobs", rows => {
      for (const row of rows) row.status ? jobs.set(row.name, row) : jobs.delete(row.name);
      if (!chosen && jobs.size) {
        chosen = newest()[0].name;
        return listen();
      }
      list();
    });
    on("job", details);
    on("log", wrote);
    on("curves", found => {
      $("metrics").hidden = !found.length;
      requestAnimationFrame(() => CURVES.show($("curves"), found));
    });
    list();
  }
  async function press(what) {
    $("problem").hidden = true;
    const answer = await fetch(`/_muster/page/${what}?job=${encodeURIComponent(chosen)}`, {method: "POST"});
    if (answer.ok) return;
    $("problem").textContent = await answer.text();
    $("problem").hidden = false;
  }
  $("stop").onclick = () => press("stop");
  $("interrupt").onclick = () => press("interrupt");
  $("filter").oninput = list;
  $("follow").onchange = log;
  $("theme").onclick = () => {
    const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = (root.dataset.theme || (dark ? "dark" : "light")) === "dark" ? "light" : "dark";
    themed();
  };
  // the timeline has this page's colours, and no bar of its own to scroll unless it is long
  const themed = () => { $("report").contentDocument.documentElement.style.colorScheme = document.documentElement.dataset.theme || ""; };
  $("report").onload = () => {
    const body = $("report").contentDocument.body;
    new ResizeObserver(() => { $("report").style.height = `${Math.min(body.offsetHeight + 2, MOST_TALL)}px`; }).observe(body);
    themed();
  };
  addEventListener("hashchange", () => { chosen = decodeURIComponent(location.hash.slice(1)); listen(); });
  listen();
})();
