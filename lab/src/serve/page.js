"use strict";
(() => {
  const by = (id) => document.getElementById(id);
  const [form, fields, toml, status, problem, charts] = ["form", "fields", "toml", "status", "problem", "charts"].map(by);
  // A change within this time belongs to the one before.
  const PAUSE = 120;
  let timer = 0;
  let running = new AbortController();

  const controls = () => [...fields.querySelectorAll("input, select")];
  const values = () => Object.fromEntries(controls().map((control) => [control.name, control.value]));

  // Shows the fields that the kinds of the limit and the load have.
  function arrange() {
    const now = values();
    for (const field of fields.querySelectorAll("[data-only]")) {
      const value = now[field.dataset.only].trim();
      const wanted = field.dataset.values.split(" ").filter(Boolean);
      field.hidden = wanted.length > 0 ? !wanted.includes(value) : value === "";
    }
  }

  function show(error) {
    for (const control of controls()) control.removeAttribute("aria-invalid");
    problem.textContent = error ? error.message : "";
    charts.className = error ? "stale" : "";
    if (!error) return;
    status.textContent = "The charts are those of the last valid description.";
    const named = controls().find((control) => control.name === error.path);
    if (named) named.setAttribute("aria-invalid", "true");
  }

  async function post(path, body, signal) {
    const response = await fetch(path, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
      signal,
    });
    const answer = await response.json();
    if (!response.ok) throw answer;
    return answer;
  }

  // Calls of the server that can fail: the newest one counts.
  async function attempt(work) {
    running.abort();
    running = new AbortController();
    const { signal } = running;
    try {
      await work(signal);
    } catch (error) {
      if (signal.aborted) return;
      show(error instanceof Error ? { path: "", message: "The server does not respond: " + error.message } : error);
    }
  }

  function run() {
    clearTimeout(timer);
    arrange();
    return attempt(async (signal) => {
      const answer = await post("/run", { service: values() }, signal);
      // All texts in it are escaped by the server, and the policy of the page stops scripts.
      charts.innerHTML = answer.html;
      toml.value = answer.toml;
      show(null);
      status.textContent = `Simulated in ${answer.milliseconds} ms.`;
    });
  }

  function load(request) {
    clearTimeout(timer);
    return attempt(async (signal) => {
      const answer = await post("/form", request, signal);
      fields.innerHTML = answer.html;
      await run();
    });
  }

  fields.addEventListener("input", () => {
    arrange();
    clearTimeout(timer);
    timer = setTimeout(run, PAUSE);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    run();
  });
  by("example").addEventListener("change", (event) => load({ example: event.target.value }));
  by("use").addEventListener("click", () => load({ service: toml.value }));
  by("copy").addEventListener("click", async () => {
    toml.select();
    try {
      await navigator.clipboard.writeText(toml.value);
      status.textContent = "Copied.";
    } catch {
      status.textContent = "The text is selected: copy it with the keyboard.";
    }
  });
  run();
})();
