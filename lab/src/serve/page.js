"use strict";
(() => {
  const by = (id) => document.getElementById(id);
  const [form, fields, settings, status, problem, charts] =
    ["form", "fields", "settings", "status", "problem", "charts"].map(by);
  const texts = { toml: by("toml"), settings_toml: by("settings-toml"), settings_rust: by("settings-rust") };
  // A change within this time belongs to the one before.
  const PAUSE = 120;
  let timer = 0;
  let running = new AbortController();
  // The settings that have no field, as TOML.
  let otherSettings = "";

  const controls = (part) => [...part.querySelectorAll("[name]")];
  const values = (part) => Object.fromEntries(controls(part).map((control) => [control.name, control.value]));

  // Shows the fields that the kinds of the limit, the load and the jitter have. Marks the settings that you changed.
  function arrange() {
    const now = values(form);
    for (const field of form.querySelectorAll("[data-only]")) {
      const value = now[field.dataset.only].trim();
      const wanted = field.dataset.values.split(" ").filter(Boolean);
      field.hidden = wanted.length > 0 ? !wanted.includes(value) : value === "";
    }
    for (const control of controls(settings)) {
      const value = control.value.trim();
      control.closest(".field").classList.toggle("changed", value !== "" && value !== control.dataset.default);
    }
  }

  function show(error) {
    for (const control of controls(form)) control.removeAttribute("aria-invalid");
    problem.textContent = error ? error.message : "";
    charts.className = error ? "stale" : "";
    if (!error) return;
    status.textContent = "The charts are those of the last valid values.";
    // An error can name a group of values, like `throttle.rate`.
    const named = controls(form).find((control) => `${control.name}.`.startsWith(`${error.path}.`));
    if (!named || !error.path) return;
    named.setAttribute("aria-invalid", "true");
    named.closest("details").open = true;
  }

  async function post(path, body, signal) {
    const response = await fetch(path, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
      signal,
    });
    const result = await response.json();
    if (!response.ok) throw result;
    return result;
  }

  // Calls of the server that can fail: the newest one counts. Returns whether it succeeded.
  async function attempt(work) {
    running.abort();
    running = new AbortController();
    const { signal } = running;
    try {
      await work(signal);
      return true;
    } catch (error) {
      if (signal.aborted) return false;
      show(error instanceof Error ? { path: "", message: "The server does not respond: " + error.message } : error);
      return false;
    }
  }

  function run() {
    clearTimeout(timer);
    arrange();
    return attempt(async (signal) => {
      const result = await post(
        "/run",
        { service: values(fields), settings: values(settings), other_settings: otherSettings },
        signal,
      );
      // All texts in it are escaped by the server, and the policy of the page stops scripts.
      charts.innerHTML = result.html;
      for (const [name, text] of Object.entries(texts)) text.value = result[name];
      show(null);
      status.textContent = `Simulated ${result.requests.toLocaleString("en")} requests in ${result.milliseconds} ms.`;
    });
  }

  function load(part, request) {
    clearTimeout(timer);
    return attempt(async (signal) => {
      const result = await post("/form", request, signal);
      part.innerHTML = result.html;
      if (part === settings) otherSettings = result.other_settings;
      else by("note").textContent = result.note;
      await run();
    });
  }

  // Runs first, so that the text is that of the form.
  async function copy(text) {
    if (!(await run())) return;
    try {
      await navigator.clipboard.writeText(text.value);
      status.textContent = "Copied.";
    } catch {
      text.closest("details").open = true;
      text.focus();
      text.select();
      status.textContent = "The text is selected: copy it with the keyboard.";
    }
  }

  form.addEventListener("input", (event) => {
    if (!event.target.name) return;
    arrange();
    clearTimeout(timer);
    timer = setTimeout(run, PAUSE);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    run();
  });
  by("example").addEventListener("change", (event) => load(fields, { example: event.target.value }));
  const clicks = {
    copy: () => copy(texts.toml),
    use: () => load(fields, { service: texts.toml.value }),
    "copy-toml": () => copy(texts.settings_toml),
    "copy-rust": () => copy(texts.settings_rust),
    "use-settings": () => load(settings, { settings: texts.settings_toml.value }),
    defaults: () => load(settings, { settings: "" }),
  };
  for (const [id, work] of Object.entries(clicks)) by(id).addEventListener("click", work);
  // On a narrow page the charts are below the form, so it starts short.
  if (matchMedia("(max-width: 60rem)").matches) by("yours").open = false;
  run();
})();
